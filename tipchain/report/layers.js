"use strict";
(() => {
  const tree = document.getElementById("tree");
  if (!tree) return;

  const rows = [...tree.querySelectorAll("details")];
  const only = document.getElementById("only-fault");
  const text = document.getElementById("filter");
  const shown = document.getElementById("shown");
  let before = null;

  const narrow = () => {
    const words = text.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const narrowed = only.checked || words.length > 0;
    if (narrowed && !before) before = rows.map((row) => row.open);
    let count = 0, all = 0;
    const inside = new Set();
    for (const row of rows) {
      const find = row.dataset.find;
      if (find !== undefined) all += 1;
      const hit = find !== undefined && (!only.checked || row.classList.contains("fault"))
        && words.every((word) => find.includes(word));
      row.hidden = narrowed && !hit;
      if (!hit) continue;
      count += 1;
      for (let at = row.parentElement.closest("details"); at && !inside.has(at); at = at.parentElement.closest("details")) {
        inside.add(at);
      }
    }
    if (narrowed) {
      for (const row of inside) {
        row.hidden = false;
        row.open = true;
      }
      shown.textContent = shown.dataset.text.replace("{n}", count).replace("{n2}", all);
    } else {
      if (before) rows.forEach((row, place) => { row.open = before[place]; });
      before = null;
      shown.textContent = "";
    }
  };
  only.addEventListener("change", narrow);
  text.addEventListener("input", narrow);
  for (const [name, open] of [["open-all", true], ["close-all", false]]) {
    document.getElementById(name).addEventListener("click", () => {
      for (const row of rows) row.open = open || row === rows[0];
    });
  }

  // The keys that trees have: up and down go from row to row, right opens or goes in, left closes or goes out.
  tree.addEventListener("keydown", (event) => {
    const row = event.target.localName === "summary" ? event.target.parentElement : null;
    if (!row || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const heads = () => [...tree.querySelectorAll("summary")].filter((one) => one.checkVisibility());
    const go = (step) => {
      const all = heads();
      all[all.indexOf(event.target) + step]?.focus();
    };
    const inner = row.querySelector(":scope > details > summary");
    const outer = row.parentElement.closest("details")?.querySelector(":scope > summary");
    if (event.key === "ArrowDown") go(1);
    else if (event.key === "ArrowUp") go(-1);
    else if (event.key === "ArrowRight") { if (row.open) inner?.focus(); else row.open = true; }
    else if (event.key === "ArrowLeft") { if (row.open) row.open = false; else outer?.focus(); }
    else if (event.key === "Home") heads()[0].focus();
    else if (event.key === "End") heads().at(-1).focus();
    else return;
    event.preventDefault();
  });
})();

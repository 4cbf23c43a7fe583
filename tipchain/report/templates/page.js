"use strict";
(() => {
  for (const one of document.querySelectorAll("button[data-copy], .controls")) one.hidden = false;

  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  };
  for (const button of document.querySelectorAll("button[data-copy]")) {
    const usual = button.textContent;
    button.addEventListener("click", async () => {
      const done = await copy(button.dataset.copy);
      button.textContent = done ? button.dataset.done : button.dataset.failed;
      button.focus();
      setTimeout(() => { button.textContent = usual; }, 1500);
    });
  }

  // What a link points at inside a closed part is not seen: open it.
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let at = target; at; at = at.parentElement) if (at.localName === "details") {
      at.open = true;
      at.hidden = false;
    }
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();

  // Filters: of the layers of a tree, and of the items of nights, each with its part below the grid.
  const form = document.querySelector(".controls");
  if (!form) return;
  const tree = document.getElementById("tree");
  const rows = [...document.querySelectorAll("#tree details, .matrix tbody tr")];
  for (const row of rows) {
    if (row.localName === "details") continue;
    row.below = document.getElementById(row.querySelector("a").hash.slice(1));
    row.dataset.find = [row.querySelector("a").textContent, ...Object.values(row.dataset), row.below.querySelector(".runs").textContent]
      .join(" ").toLowerCase();
  }
  const items = rows.filter((row) => row.dataset.find !== undefined);
  const shown = form.querySelector("output");
  let before = null;
  const narrow = () => {
    const words = form.querySelector("[type=search]").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const only = form.querySelector(":checked[type=checkbox]")?.value;
    const chosen = [...form.querySelectorAll("select")].filter((one) => one.value);
    const narrowed = words.length > 0 || only !== undefined || chosen.length > 0;
    const hits = new Set(items.filter((row) => words.every((word) => row.dataset.find.includes(word))
      && (only === undefined || row.dataset[only] !== undefined)
      && chosen.every((one) => (row.dataset[one.name] ?? "").split(" ").includes(one.value))));
    for (const row of rows) row.hidden = narrowed && !hits.has(row);
    for (const row of items) if (row.below) row.below.hidden = row.hidden;
    if (tree && narrowed) {
      before ??= rows.map((row) => row.open);
      for (const row of hits) for (let at = row.parentElement.closest("details"); at; at = at.parentElement.closest("details")) {
        at.hidden = false;
        at.open = true;
      }
    } else if (before) {
      rows.forEach((row, place) => { row.open = before[place]; });
      before = null;
    }
    const all = (items.length === 1 ? shown.dataset.one : shown.dataset.all) ?? "";
    const text = narrowed && hits.size < items.length ? shown.dataset.text : all;
    shown.textContent = text.replace("{n}", hits.size).replace("{n2}", items.length);
  };
  form.addEventListener("input", narrow);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(narrow));
  narrow();
  if (!tree) return;
  for (const button of form.querySelectorAll("button[value]")) button.addEventListener("click", () => {
    for (const row of rows) row.open = button.value === "open" || row === rows[0];
  });

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

"use strict";
(() => {
  const said = JSON.parse(document.getElementById("data").textContent);
  const form = document.getElementById("filters");
  const shown = document.getElementById("shown");
  const rows = [...document.querySelectorAll(".nights .matrix tbody tr")];

  // Each row with its part below, and the text it is found by.
  for (const row of rows) {
    const link = row.cells[0].querySelector("a");
    row.below = document.getElementById(link.hash.slice(1));
    row.words = [link.textContent, link.title, row.dataset.tag, row.dataset.changed, row.below.querySelector(".runs")?.textContent]
      .join(" ").toLowerCase();
  }
  const value = (name) => document.getElementById(name)?.value ?? "";
  const narrow = () => {
    const words = value("find").toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = ["outcome", "kind", "mode", "device", "tag"].map((name) => [name, value(name)]).filter(([, one]) => one);
    const changed = document.getElementById("changed").checked;
    let count = 0;
    for (const row of rows) {
      const hit = words.every((word) => row.words.includes(word)) && (!changed || row.dataset.changed)
        && wanted.every(([name, one]) => (row.dataset[name] ?? "").split(" ").includes(one));
      row.hidden = row.below.hidden = !hit;
      if (hit) count += 1;
    }
    const few = rows.length === 1 ? said.item : said.items;
    const text = count === rows.length ? few : said.some;
    shown.textContent = text.replace("{n}", count).replace("{n2}", rows.length);
  };
  form.addEventListener("input", narrow);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(narrow));
  form.hidden = false;
  narrow();
})();

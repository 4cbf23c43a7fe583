"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const outcomes = ["PASS", "FAIL", "ERROR", "SKIP"];
  const form = document.getElementById("filters");
  const shown = document.getElementById("shown");
  const rows = [...document.querySelectorAll(".nights .matrix tbody tr")];
  const make = (name, text, more = {}) => Object.assign(document.createElement(name), { textContent: text, ...more });

  // Each row with its part below, and the text it is found by.
  for (const row of rows) {
    const place = row.closest("table").dataset.manifest;
    row.below = document.getElementById(`i${place}-${data.items[place][row.dataset.item][0]}`);
    row.words = [row.cells[0].textContent, row.dataset.id, row.dataset.tag, row.dataset.changed, row.below.querySelector(".runs")?.textContent]
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
    const of = rows.length === 1 ? "item" : "items";
    shown.textContent = count === rows.length ? `${count} ${of}` : `${count} of ${rows.length} ${of}`;
  };
  form.addEventListener("input", narrow);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(narrow));
  form.hidden = false;

  for (const table of document.querySelectorAll(".nights .matrix")) {
    const place = table.dataset.manifest;
    const turns = [...table.tHead.rows[0].cells].map((cell) => cell.querySelector("b") !== null);
    const told = make("div", "", { className: "told-cell" });
    told.setAttribute("aria-live", "polite");
    told.append(make("p", "Arrow keys go from cell to cell, Enter to its log or report, Escape back.", { className: "note" }));
    table.parentElement.after(told);
    table.parentElement.removeAttribute("tabindex");
    let current = null;

    const tell = (cell) => {
      const row = cell.parentElement;
      const item = data.items[place][row.dataset.item];
      const night = data.nights[place][cell.cellIndex - 1];
      const one = item[cell.cellIndex];
      const head = make("p", `${night.when}  `);
      head.append(make("a", row.dataset.id, { href: `#i${place}-${item[0]}` }));
      told.replaceChildren(head);
      if (!one) {
        told.append(make("p", "not planned, or not run yet"));
        return;
      }
      const [outcome, seconds, reason, log, report] = one;
      const line = make("p", "");
      line.append(make("span", outcomes[outcome], { className: `outcome ${outcomes[outcome].toLowerCase()}` }));
      line.append(` ${seconds} s ${data.texts[reason] ? `: ${data.texts[reason]}` : ""} `);
      for (const [name, path] of [["report", data.texts[report]], ["log", data.texts[log]]]) {
        if (path) line.append(make("a", name, { href: `${night.href}/items/${item[0]}/${path}` }), " ");
      }
      told.append(line);
    };
    const go = (cell) => {
      if (!cell) return;
      if (current) current.tabIndex = -1;
      current = cell;
      cell.tabIndex = 0;
      cell.focus();
      tell(cell);
    };
    // One stop of the Tab key for the whole grid; links in cells are reached with Enter.
    for (const link of table.querySelectorAll("td a")) link.tabIndex = -1;
    for (const row of table.tBodies[0].rows) {
      for (const cell of row.cells) if (turns[cell.cellIndex]) cell.classList.add("turn");
    }
    current = table.querySelector("tbody td");
    if (current) current.tabIndex = 0;

    table.addEventListener("focusin", (event) => {
      if (event.target.localName === "td") tell(event.target);
    });
    table.addEventListener("click", (event) => {
      const cell = event.target.closest("tbody td");
      if (cell && !event.target.closest("a")) go(cell);
    });
    table.addEventListener("mouseover", (event) => {
      const cell = event.target.closest("tbody td");
      if (cell && !cell.title) cell.title = `${cell.parentElement.dataset.id}, ${data.nights[place][cell.cellIndex - 1].when}`;
    });
    const visible = (row, step) => {
      let at = row;
      do at = step > 0 ? at.nextElementSibling : at.previousElementSibling; while (at?.hidden);
      return at;
    };
    table.addEventListener("keydown", (event) => {
      const cell = event.target.localName === "td" ? event.target : null;
      if (!cell || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      const row = cell.parentElement, at = cell.cellIndex;
      if (event.key === "ArrowRight") go(row.cells[at + 1]);
      else if (event.key === "ArrowLeft") go(at > 1 ? row.cells[at - 1] : null);
      else if (event.key === "ArrowDown") go(visible(row, 1)?.cells[at]);
      else if (event.key === "ArrowUp") go(visible(row, -1)?.cells[at]);
      else if (event.key === "Home") go(row.cells[1]);
      else if (event.key === "End") go(row.cells[row.cells.length - 1]);
      else if (event.key === "Enter") told.querySelector("p:last-child a")?.focus();
      else return;
      event.preventDefault();
    });
    told.addEventListener("keydown", (event) => {
      if (event.key === "Escape") current?.focus();
    });
    // A filter may hide the cell that Tab leads to.
    form.addEventListener("input", () => {
      if (!current?.parentElement.hidden) return;
      const first = [...table.tBodies[0].rows].find((row) => !row.hidden);
      if (!first) return;
      current.tabIndex = -1;
      current = first.cells[current.cellIndex];
      current.tabIndex = 0;
    });
  }
  narrow();
})();

"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const outcomes = ["PASS", "FAIL", "ERROR", "SKIP"];
  const form = document.getElementById("filters");
  const shown = document.getElementById("shown");
  const rows = [...document.querySelectorAll(".nights .matrix tbody tr")];
  const make = (name, text, more = {}) => Object.assign(document.createElement(name), { textContent: text, ...more });

  // The runs of a row, the latest first.
  const cells = (row) => data.items[row.closest("table").dataset.manifest][row.sectionRowIndex];

  // Each row with its part below, and the text it is found by.
  for (const row of rows) {
    const link = row.cells[0].querySelector("a");
    row.below = document.getElementById(link.hash.slice(1));
    row.below.row = row;
    row.name = link.title = row.below.querySelector(".note").textContent.split(" · ")[0];
    const latest = cells(row).find((one) => one !== null);
    if (latest !== undefined) row.dataset.outcome = outcomes[Array.isArray(latest) ? latest[0] : 0];
    row.words = [row.cells[0].textContent, row.name, row.dataset.tag, row.dataset.changed, row.below.querySelector(".runs")?.textContent]
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
    const few = rows.length === 1 ? data.words.item : data.words.items;
    const text = count === rows.length ? few : data.words.some;
    shown.textContent = text.replace("{n}", count).replace("{n2}", rows.length);
  };
  form.addEventListener("input", narrow);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(narrow));
  form.hidden = false;

  // Curves are drawn when their item is opened: a letter a night says how high.
  const levels = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+";
  const [width, height, left, right, top, bottom] = [300, 76, 4, 52, 8, 8];
  const draw = (name, attributes, parent, text = "") => {
    const one = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
    one.textContent = text;
    parent.append(one);
    return one;
  };
  const plot = (line, row) => {
    const [low, high, last, letters] = line.dataset.curve.split(" ");
    const heights = [...letters].map((one) => levels.indexOf(one));
    const x = (at) => left + (width - right - left) * at / Math.max(heights.length - 1, 1);
    const y = (level) => height - bottom - (height - bottom - top) * level / (levels.length - 1);
    const runs = cells(row).toReversed();
    const wrong = (at) => Array.isArray(runs[at]) && (runs[at][0] === 1 || runs[at][0] === 2);
    const there = heights.flatMap((level, at) => level < 0 ? [] : [at]);
    const dots = (some) => some.map((at) => `M${x(at)} ${y(heights[at])}h0`).join("");
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, line);
    const turns = [...row.closest("table").tHead.rows[0].cells].slice(1).reverse().flatMap((cell, at) => cell.querySelector("b") ? [at] : []);
    if (turns.length) draw("path", { class: "turn", d: turns.map((at) => `M${x(at - 0.5)} 0V${height}`).join("") }, svg);
    draw("path", { class: "line", d: there.map((at, place) => `${there[place - 1] === at - 1 ? "L" : "M"}${x(at)} ${y(heights[at])}`).join("") }, svg);
    draw("path", { class: "dots", d: dots((there.length > 2 ? there.slice(-1) : there).filter((at) => !wrong(at))) }, svg);
    draw("path", { class: "dots differs", d: dots(there.filter(wrong)) }, svg);
    // The latest, the largest and the least value at their places, where there is room for them.
    const found = there.map((at) => heights[at]), taken = [];
    for (const [text, level, kind] of [[last, found.at(-1), "last"], [high, Math.max(...found), ""], [low, Math.min(...found), ""]]) {
      const at = y(level) + 4;
      if (taken.some((one) => Math.abs(at - one) < 11)) continue;
      taken.push(at);
      draw("text", { x: width - right + 6, y: at, class: kind }, svg, text);
    }
  };
  document.addEventListener("toggle", ({ target }) => {
    if (target.row) for (const line of target.querySelectorAll("[data-curve]")) if (!line.lastElementChild) plot(line, target.row);
  }, true);

  for (const table of document.querySelectorAll(".nights .matrix")) {
    const place = table.dataset.manifest;
    const turns = [...table.tHead.rows[0].cells].map((cell) => cell.querySelector("b") !== null);
    const told = make("div", "", { className: "told-cell" });
    told.setAttribute("aria-live", "polite");
    told.append(make("p", data.words.keys, { className: "note" }));
    table.parentElement.after(told);
    table.parentElement.removeAttribute("tabindex");
    let current = null;

    const tell = (cell) => {
      const row = cell.parentElement;
      const night = data.nights[place][cell.cellIndex - 1];
      const one = cells(row)[cell.cellIndex - 1];
      const head = make("p", `${night.when}  `);
      head.append(make("a", row.name, { href: `#${row.below.id}` }));
      told.replaceChildren(head);
      if (one === null) {
        told.append(make("p", data.words.none));
        return;
      }
      const [outcome, seconds, reason, log, report] = Array.isArray(one) ? one : [0, one, 0, ...data.usual];
      const line = make("p", "");
      line.append(make("span", outcomes[outcome], { className: `outcome ${outcomes[outcome].toLowerCase()}` }));
      line.append(` ${data.words.seconds.replace("{n}", seconds)} ${data.texts[reason] ? `: ${data.texts[reason]}` : ""} `);
      for (const [name, path] of [[data.words.report, data.texts[report]], [data.words.log, data.texts[log]]]) {
        if (path) line.append(make("a", name, { href: `${night.href}/items/${row.below.id.slice(`i${place}-`.length)}/${path}` }), " ");
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
      if (cell && !cell.title) cell.title = `${cell.parentElement.name}, ${data.nights[place][cell.cellIndex - 1].when}`;
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

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
})();

// The keyboard, copy buttons, and what Unfold's pages lack for those who don't see them or don't use a mouse.
(function () {
  "use strict";
  const FIELDS = ["INPUT", "TEXTAREA", "SELECT"];
  // So long a key waits for the one after it.
  const PATIENCE_MILLISECONDS = 1500;
  // So long a form that was sent isn't sent once more: the second click of a double one would do it twice. Later it is meant.
  const SENT_MILLISECONDS = 2000;
  let waitingSince = -Infinity;

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-berth-copy]");
    if (!button) return;
    navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent).then(() => {
      button.textContent = "Copied";
    });
  });

  // The rule editor stands in a shadow tree: outside of it, what is typed there seems to come from the box around it.
  function isTyping(event) {
    const target = event.composedPath()[0];
    return target.isContentEditable || FIELDS.includes(target.tagName);
  }

  const isSeen = (element) => element.getClientRects().length > 0;

  function toSearch() {
    const fields = document.querySelectorAll("#main input[type='search'], #searchbar, #main input[name='q']");
    const field = [...fields].find(isSeen);
    if (field) field.focus();
    else window.dispatchEvent(new CustomEvent("opencommand"));
  }

  function showKeys() {
    const keys = document.getElementById("keys");
    if (keys && !keys.open) keys.showModal();
  }

  function goTo(key) {
    const link = [...document.querySelectorAll("#keys a[data-key]")].find((each) => each.dataset.key === key);
    if (link) window.location.href = link.href;
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
    if (event.key === "Shift") return; // a capital comes next
    if (document.querySelector("dialog[open]") && event.key !== "g" && waitingSince < 0) return;
    const isSecond = event.timeStamp - waitingSince < PATIENCE_MILLISECONDS;
    waitingSince = -Infinity;
    if (isSecond) goTo(event.key);
    else if (event.key === "g") waitingSince = event.timeStamp;
    else if (event.key === "?") showKeys();
    else if (event.key === "/") {
      event.preventDefault();
      toSearch();
    }
  });

  const sent = new Map();
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (event.defaultPrevented || form.getAttribute("method")?.toLowerCase() !== "post") return;
    if (event.timeStamp - sent.get(form) < SENT_MILLISECONDS) event.preventDefault();
    else sent.set(form, event.timeStamp);
  });
  // A form with data-berth-with also sends the value of that field, which belongs to another form.
  document.addEventListener("formdata", (event) => {
    const field = document.getElementById(event.target.dataset.berthWith);
    if (field) event.formData.set(field.name, field.value);
  });
  // Back on a page that the browser kept, the form was sent long ago.
  window.addEventListener("pageshow", () => sent.clear());

  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-berth-keys]")) showKeys();
    if (event.target.closest("[data-berth-find]")) window.dispatchEvent(new CustomEvent("opencommand"));
  });

  // What is clicked and is no link and no button: Tab comes to it, Enter and Space press it.
  const PRESSED = ["a", "span", "div", "h2", "h3", "th", "td"].map((tag) => `${tag}[x-on\\:click]:not([href])`).join();
  function reach(root) {
    root.querySelectorAll(PRESSED).forEach((element) => {
      if (element.querySelector("a[href], button, input, select, textarea")) return;
      if (!element.hasAttribute("tabindex")) element.tabIndex = 0;
      if (!element.hasAttribute("role")) element.setAttribute("role", "button");
    });
    root.querySelectorAll("a:not([href]).add-row, .add-row a:not([href]), a.inline-deletelink:not([href])").forEach((element) => {
      element.tabIndex = 0;
      element.setAttribute("role", "button");
    });
  }
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    if (event.target.getAttribute("role") !== "button" || event.target.tagName === "BUTTON") return;
    event.preventDefault();
    event.target.click();
  });

  // What finds is over the page: Tab goes round in it, and Escape closes it from anywhere in it, back to where the keyboard was.
  let before = null;
  document.addEventListener("focusin", (event) => {
    const palette = event.target.closest("#palette");
    if (palette && event.relatedTarget && !palette.contains(event.relatedTarget)) before = event.relatedTarget;
  });
  document.addEventListener("keydown", (event) => {
    const palette = event.target.closest("#palette");
    if (!palette) return;
    if (event.key === "Escape") leave(palette, event.target);
    if (event.key === "Tab") goRound(palette, event);
  });
  window.addEventListener("commandclosed", () => {
    if (before) before.focus();
    before = null;
  });

  // The field knows Escape: the first press empties it, the next one closes.
  function leave(palette, from) {
    const field = palette.querySelector("input");
    if (from === field) return;
    field.value = "";
    field.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
  }

  function goRound(palette, event) {
    const stops = [...palette.querySelectorAll("a[href], button, input, [tabindex]")].filter((each) => each.tabIndex >= 0 && isSeen(each));
    const [from, to] = event.shiftKey ? [stops[0], stops.at(-1)] : [stops.at(-1), stops[0]];
    if (event.target !== from) return;
    event.preventDefault();
    to.focus();
  }

  // What is wider than its place is scrolled by keys, too.
  function scrollByKeys() {
    document.querySelectorAll(".berth-table, .berth-scroll:not([role]), #content section").forEach((box) => {
      const scrolls = getComputedStyle(box).overflowX === "auto" && box.scrollWidth > box.clientWidth;
      if (scrolls) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    });
  }
  window.addEventListener("resize", scrollByKeys);

  function say(root) {
    // An icon is a word in a font: it isn't read aloud where a text stands beside it.
    root.querySelectorAll(".material-symbols-outlined").forEach((icon) => {
      const holder = icon.closest("a, button, [role='button'], h1, h2");
      if (icon !== holder && holder && (holder.hasAttribute("aria-label") || holder.textContent.trim() !== icon.textContent.trim())) {
        icon.setAttribute("aria-hidden", "true");
      }
    });
    root.querySelectorAll(".help-tooltip[aria-label]:not([role])").forEach((help) => help.setAttribute("role", "img"));
    root.querySelectorAll("pre:not([tabindex])").forEach((block) => {
      block.tabIndex = 0;
    });
    scrollByKeys();
    root.querySelectorAll(".select2-selection, .select2-selection__rendered").forEach((field) => {
      const select = field.closest(".select2-container")?.previousElementSibling;
      const label = select?.id && document.querySelector(`label[for="${select.id}"]`);
      if (label) field.setAttribute("aria-label", label.textContent.trim().replace(/\s*\*$/, ""));
      // A search takes the place of its select, and so the keyboard.
      if (select === document.activeElement && field.tabIndex === 0) field.focus({ preventScroll: true });
    });
    root.querySelectorAll(".simplebar-content-wrapper").forEach((region, index) => {
      const around = region.closest("nav") ? "Pages" : region.closest("[role='dialog']") ? "What was found" : "Table";
      region.setAttribute("aria-label", `${around}, scrollable ${index + 1}`);
    });
    reach(root);
  }

  // A form that wasn't taken is there again: the keyboard goes to the list of faults, else to the first field to mend, else to what is said.
  function toFault() {
    const page = document.querySelector("#content[data-berth-answers-form]");
    const wanted = ["#faults", "[aria-invalid='true']", ".errornote, .errorlist, [role='alert']"];
    const found = page && wanted.map((each) => [...page.querySelectorAll(each)].find(isSeen)).find(Boolean);
    if (!found) return;
    const isField = FIELDS.includes(found.tagName);
    if (!isField) found.tabIndex = -1;
    found.scrollIntoView({ block: isField ? "center" : "nearest" });
    found.focus({ preventScroll: true });
  }

  // A page of something that goes on shows itself anew, but not under the hands of somebody who types or looks something up in it.
  function refreshIn(seconds) {
    window.setTimeout(() => {
      const isUsed = FIELDS.includes(document.activeElement.tagName) || [...document.querySelectorAll("dialog, [role='dialog']")].some(isSeen);
      if (isUsed) refreshIn(seconds);
      else window.location.reload();
    }, seconds * 1000);
  }

  window.addEventListener("load", () => {
    const refresh = document.querySelector("meta[name='berth-refresh']");
    if (refresh) refreshIn(Number(refresh.content));
    say(document);
    toFault();
    // Pieces that come later: by htmx, by Alpine, by a form that grows.
    let isDue = false;
    new MutationObserver(() => {
      if (isDue) return;
      isDue = true;
      requestAnimationFrame(() => {
        isDue = false;
        say(document);
      });
    }).observe(document.body, { childList: true, subtree: true });
  });
})();

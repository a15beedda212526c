// Copy buttons, keyboard: "g" then a letter goes to a page.
(function () {
  "use strict";
  const pages = { h: "", r: "policies/ruleset/", a: "policies/assignment/", v: "policies/revision/", d: "scheduler/decision/", p: "scheduler/process/", o: "scheduler/doctor/" };
  let waiting = false;

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-berth-copy]");
    if (!button) return;
    navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent).then(() => {
      button.textContent = "Copied";
    });
  });

  document.addEventListener("keydown", (event) => {
    const target = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName)) return;
    if (waiting && event.key in pages) {
      waiting = false;
      window.location.href = "/admin/" + pages[event.key];
      return;
    }
    waiting = event.key === "g";
  });
})();

// Light or dark: what the notebook says, else what the reader's system says.

export function pageIsDark() {
  const { body, documentElement } = document;
  const lab = body.getAttribute("data-jp-theme-light");
  if (lab !== null) return lab === "false";
  if (body.classList.contains("vscode-dark") || body.classList.contains("vscode-high-contrast")) return true;
  if (body.classList.contains("vscode-light")) return false;
  const colab = documentElement.getAttribute("theme");
  if (colab !== null) return colab === "dark";
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Calls back on every change; returns how to stop. */
export function watchPage(callback) {
  const observer = new MutationObserver(callback);
  const attributeFilter = ["data-jp-theme-light", "class", "theme"];
  observer.observe(document.body, { attributes: true, attributeFilter });
  observer.observe(document.documentElement, { attributes: true, attributeFilter });
  const media = window.matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", callback);
  return () => {
    observer.disconnect();
    media.removeEventListener("change", callback);
  };
}

// Inside the frame of a widget: its height goes to the page around it, light or dark comes from there.
(() => {
  const root = document.documentElement;
  const tell = () => parent.postMessage({ attnlab: "height", height: Math.ceil(root.getBoundingClientRect().height) }, "*");
  new ResizeObserver(tell).observe(root);
  addEventListener("message", ({ source, data }) => {
    if (source === parent && data?.attnlab === "theme") {
      root.setAttribute("theme", data.theme);
      root.style.colorScheme = data.theme;
    }
  });
  parent.postMessage({ attnlab: "ready" }, "*");
})();

// What the pages of the site do: light and dark, living figures, frames that fit, questions, search.
(() => {
  const root = document.documentElement;
  const top = document.currentScript.src.replace(/_static\/site\.js.*$/, "");
  const figures = {};
  window.attnlab = { figures };

  // ---- light and dark: figures and widgets read the attribute of the page
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => {
    const chosen = document.body.dataset.theme;
    return chosen === "dark" || (chosen !== "light" && dark.matches) ? "dark" : "light";
  };
  const frames = () => [...document.querySelectorAll("iframe.widget")];
  const tell = (frame) => frame.contentWindow?.postMessage({ attnlab: "theme", theme: theme() }, "*");
  function follow() {
    root.setAttribute("theme", theme());
    frames().forEach(tell);
  }
  new MutationObserver(follow).observe(document.body, { attributes: true, attributeFilter: ["data-theme"] });
  dark.addEventListener("change", follow);
  follow();

  // ---- the frames of widgets are as high as what they show
  addEventListener("message", ({ source, data }) => {
    const frame = data?.attnlab && frames().find((one) => one.contentWindow === source);
    if (!frame) return;
    if (data.attnlab === "ready") tell(frame);
    if (data.attnlab === "height") frame.style.height = `${data.height}px`;
  });

  // ---- figures: the picture stands at once; plotly takes its place when the reader comes near
  const loads = {};
  const load = (name) =>
    (loads[name] ??= new Promise((done, failed) => {
      const script = document.createElement("script");
      Object.assign(script, { src: top + name, onload: done, onerror: failed });
      document.head.append(script);
    }));
  async function enliven(place) {
    const name = place.dataset.figure;
    await Promise.all([load("_static/plotly.min.js"), load(name)]);
    const { data, layout, frames = [], config } = figures[name];
    const plot = document.createElement("div");
    plot.className = "plot";
    const stills = [...place.children].filter((child) => child.tagName !== "STYLE");
    const { height } = place.getBoundingClientRect();
    plot.style.minHeight = `${layout.height ?? height}px`;
    stills.forEach((still) => still.remove());
    place.append(plot);
    await window.Plotly.newPlot(plot, data, layout, config);
    if (frames.length) await window.Plotly.addFrames(plot, frames);
    place.dataset.alive = "";
  }
  const near = new IntersectionObserver(
    (seen) => {
      for (const { target, isIntersecting } of seen) {
        if (!isIntersecting) continue;
        near.unobserve(target);
        enliven(target);
      }
    },
    { rootMargin: "300px" },
  );
  document.querySelectorAll("[data-figure]").forEach((place) => near.observe(place));

  // ---- questions: choose, commit, then look
  const element = (tag, props = {}, ...inside) => {
    const made = Object.assign(document.createElement(tag), props);
    made.append(...inside);
    return made;
  };
  function ask(box, number) {
    const [question, list, folded] = box.children;
    if (!folded) return;
    const answer = folded.querySelector("strong").textContent.replace(/\.$/, "");
    const why = folded.querySelector("p").textContent.slice(answer.length + 1).trim();
    const choices = [...list.children].map((item) => {
      const input = element("input", { type: "radio", name: `question-${number}`, value: item.textContent });
      return element("label", {}, input, ` ${item.textContent}`);
    });
    const commit = element("button", { type: "submit", textContent: "Commit, then look", disabled: true });
    const verdict = element("p", { className: "verdict" });
    verdict.setAttribute("role", "status");
    const form = element("form", {}, question, element("fieldset", {}, ...choices), commit, verdict);
    form.addEventListener("change", () => (commit.disabled = false));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const chosen = new FormData(form).get(`question-${number}`);
      form.querySelectorAll("input, button").forEach((control) => (control.disabled = true));
      const right = chosen === answer;
      const said = right ? `✓ Yes: ${answer}.` : `→ You said ${chosen}. It is: ${answer}.`;
      verdict.append(element("strong", { textContent: said }), ` ${why}`);
      form.classList.add(right ? "right" : "wrong");
      const after = box.closest(".output")?.nextElementSibling;
      if (after?.matches("details.after")) after.open = true;
    });
    box.replaceChildren(form);
  }
  document.querySelectorAll(".predict").forEach(ask);

  // ---- search results say what each page is
  const results = document.getElementById("search-results");
  if (results) {
    const describe = () => {
      for (const link of results.querySelectorAll("li > a:not([data-described])")) {
        link.dataset.described = "";
        const page = link.href.slice(top.length).replace(/[?#].*$/, "");
        const said = window.attnlabPages?.[page];
        if (said) link.after(element("p", { className: "said", textContent: said }));
      }
    };
    new MutationObserver(describe).observe(results, { childList: true, subtree: true });
  }
})();

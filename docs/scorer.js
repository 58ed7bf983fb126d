// Search: a lesson that says the asked term of two words often comes before those that mention it.
Scorer.score = ([page, , , , score]) => {
  const asked = new URLSearchParams(location.search).get("q") ?? "";
  const term = asked.toLowerCase().split(/\s+/).filter(Boolean).map((word) => word.replace(/s$/, "")).join(" ");
  return score + (window.attnlabPhrases?.[`${page}.html`]?.[term] ?? 0);
};

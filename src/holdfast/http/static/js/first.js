// What must not wait for modules: the theme, so that no page flashes in the other one, and the question who looks.
{
  let kept = null;
  try {
    kept = localStorage.getItem("holdfast.theme"); // the choice stays on this device
  } catch {
    // a browser may refuse storage; then the system's theme holds
  }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;

  if (!location.pathname.endsWith("/sign-in")) {
    const question = { path: "api/me", asked: performance.now(), came: null };
    const options = { credentials: "same-origin", cache: "no-store", redirect: "error", headers: { Accept: "application/json" } };
    question.answer = fetch(question.path, options).then(async (answer) => {
      const text = await answer.text(); // at once: an answer that nobody reads keeps its connection
      question.came = performance.now();
      return { ok: answer.ok, status: answer.status, headers: answer.headers, text: () => text };
    });
    question.answer.catch(() => {}); // api.js tells of it
    globalThis.firstQuestion = question;
  }
}

// Runs before the first paint, so that no page flashes in the other theme. The choice stays on this device.
{
  let kept = null;
  try {
    kept = localStorage.getItem("holdfast.theme");
  } catch {
    // a browser may refuse storage; then the system's theme holds
  }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
}

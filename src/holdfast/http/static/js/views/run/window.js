// The window on a long list: rows have a fixed height, so the place of one is a multiplication, and only those in sight are in the page.

/** Shows rows in a list of the page. The answer has show(first, last, row) and of(key), the element of a row that is shown. */
export function windowOn(list, { high, pad = 0 }) {
  const drawn = new Map(); // by the key of a row: {element, stamp}

  /** Show the rows from first to last; `row(nth)` is {key, stamp, make}. One whose stamp is the same stays as it is. */
  function show(first, last, row) {
    const wanted = new Set();
    let before = null;
    for (let nth = first; nth < last; nth += 1) {
      const { key, stamp, make } = row(nth), found = drawn.get(key);
      wanted.add(key);
      let element = found?.element;
      if (found?.stamp !== stamp) {
        element = make();
        if (found) {
          const focused = found.element.contains(document.activeElement);
          found.element.replaceWith(element);
          if (focused) element.focus({ preventScroll: true });
        }
        drawn.set(key, { element, stamp });
      }
      element.style.setProperty("top", `${pad + nth * high}px`);
      const next = before ? before.nextSibling : list.firstChild;
      if (next !== element) list.insertBefore(element, next);
      before = element;
    }
    for (const [key, { element }] of drawn) {
      if (wanted.has(key)) continue;
      element.remove();
      drawn.delete(key);
    }
  }

  return { show, of: (key) => drawn.get(key)?.element ?? null, each: () => drawn.entries() };
}

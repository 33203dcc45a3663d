// Looks at the page as it is drawn, and says what somebody could not read, name or touch.
() => {
  const wrong = [];
  const seen = (each) => each.getClientRects().length && getComputedStyle(each).visibility !== 'hidden';
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((s, c, i) => s + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const back = rgb(getComputedStyle(at).backgroundColor);
      if (back[3] > 0) layers.push(back);
      if (back[3] === 1) break;
    }
    return layers.reverse().reduce((under, [r, g, b, a]) => [r * a + under[0] * (1 - a), g * a + under[1] * (1 - a), b * a + under[2] * (1 - a)], [255, 255, 255]);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode()); ) {
    const of = node.parentElement;
    if (!node.textContent.trim() || !seen(of) || of.closest('.unseen, .skip, svg, [aria-hidden=true], :disabled, option, noscript, .gone')) continue;
    const ink = rgb(getComputedStyle(of).color), back = behind(of);
    const [one, other] = [light(ink), light(back)].sort((x, y) => y - x);
    const ratio = (one + 0.05) / (other + 0.05);
    if (ratio < 4.5) wrong.push(`contrast ${ratio.toFixed(2)}: ${node.textContent.trim().slice(0, 40)} (${of.className})`);
  }
  const least = 24;
  for (const each of document.querySelectorAll('a[href], button, input, select, textarea, summary')) {
    if (!seen(each) || each.matches('.skip')) continue;
    const name = each.getAttribute('aria-label') || each.textContent.trim() || each.title || (each.labels?.length && [...each.labels].map((one) => one.textContent).join(' '));
    if (!name) wrong.push(`no name: ${each.outerHTML.slice(0, 100)}`);
    const box = each.getBoundingClientRect();
    const inline = each.matches('a, .link, summary') || getComputedStyle(each).display === 'inline';
    const padded = each.matches('input[type=checkbox]') ? 46 : 0; // the cell around it is its target
    if (!inline && Math.max(box.height, padded) < least - 0.5) wrong.push(`small ${Math.round(box.width)}x${Math.round(box.height)}: ${name || each.className}`);
  }
  if (document.documentElement.scrollWidth > innerWidth + 1) {
    const wide = [...document.querySelectorAll('main *')].filter((each) => each.getBoundingClientRect().right > innerWidth + 1 && seen(each)).slice(0, 3);
    wrong.push(`wider than the page by ${document.documentElement.scrollWidth - innerWidth}: ${wide.map((each) => each.className || each.tagName).join(', ')}`);
  }
  if (document.querySelectorAll('main h1').length !== 1) wrong.push(`${document.querySelectorAll('main h1').length} h1`);
  if (document.querySelectorAll('main').length !== 1) wrong.push('not one main');
  const ids = [...document.querySelectorAll('[id]')].map((each) => each.id);
  if (new Set(ids).size !== ids.length) wrong.push(`an id twice: ${ids.find((each, at) => ids.indexOf(each) !== at)}`);
  return wrong;
}

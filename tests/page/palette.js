// A picture as at most 256 colours: {width, height, colours: [[r, g, b]], places: base64 of one byte for each point}.
async (given) => {
  const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${given}`)).blob());
  const { width, height } = image;
  const canvas = new OffscreenCanvas(width, height).getContext('2d');
  canvas.drawImage(image, 0, 0);
  const data = new Uint32Array(canvas.getImageData(0, 0, width, height).data.buffer); // a b g r
  const counts = new Map();
  for (const colour of data) counts.set(colour, (counts.get(colour) ?? 0) + 1);
  const parts = (colour) => [colour & 255, (colour >> 8) & 255, (colour >> 16) & 255];
  const far = ([a, b, c], [x, y, z]) => 2 * (a - x) ** 2 + 4 * (b - y) ** 2 + 3 * (c - z) ** 2;
  // The colours of surfaces are there as they are; those of the edges of letters are gathered with their neighbours.
  const all = [...counts].sort((one, other) => other[1] - one[1]);
  const chosen = [];
  for (let near = 0; chosen.length < 256 && near < 2; near += 1) {
    for (const [colour, count] of all) {
      if (chosen.length === 256) break;
      const own = parts(colour);
      const apart = near ? 0 : count > 2000 ? 0 : 90;
      if (!chosen.some((each) => far(each, own) <= apart)) chosen.push(own);
    }
  }
  const nearest = new Map();
  for (const [colour] of all) {
    const own = parts(colour);
    let best = 0, least = Infinity;
    for (let nth = 0; nth < chosen.length && least; nth += 1) {
      const long = far(chosen[nth], own);
      if (long < least) [best, least] = [nth, long];
    }
    nearest.set(colour, best);
  }
  let text = '';
  for (const colour of data) text += String.fromCharCode(nearest.get(colour));
  return { width, height, colours: chosen, places: btoa(text) };
}

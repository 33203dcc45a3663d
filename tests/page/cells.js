// A picture as a grid of mean colours, 24 across: what an eye sees from the other end of the room.
async (given) => {
  const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${given}`)).blob());
  const across = 24, down = Math.round((across * image.height) / image.width);
  const canvas = new OffscreenCanvas(across, down).getContext('2d');
  canvas.imageSmoothingQuality = 'high';
  canvas.drawImage(image, 0, 0, across, down);
  const { data } = canvas.getImageData(0, 0, across, down);
  return Array.from({ length: across * down }, (_, nth) => [data[4 * nth], data[4 * nth + 1], data[4 * nth + 2]]);
}

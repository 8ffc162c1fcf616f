"""Screenshots as small PNGs: at most 256 colours, the common ones exact, made in the browser
itself.

A page of text and flat colours loses nothing that an eye would miss, and is a fifth of the size.
"""

from __future__ import annotations

import base64
from pathlib import Path

from playwright.sync_api import BrowserContext, Page

_SMALL = """
async (source) => {
  const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${source}`)).blob());
  const { width, height } = image;
  const canvas = new OffscreenCanvas(width, height).getContext("2d");
  canvas.drawImage(image, 0, 0);
  const pixels = new Uint32Array(canvas.getImageData(0, 0, width, height).data.buffer);
  const parts = (c) => [c & 255, (c >> 8) & 255, (c >> 16) & 255];

  // The most frequent colours, rounded ones where the exact are too many.
  const counts = new Map();
  for (const c of pixels) counts.set(c, (counts.get(c) ?? 0) + 1);
  const palette = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 256).map(([c]) => c);
  const place = new Map(palette.map((c, i) => [c, i]));
  const nearest = (c) => {
    const [r, g, b] = parts(c);
    let [best, least] = [0, Infinity];
    palette.forEach((other, i) => {
      const [x, y, z] = parts(other);
      const apart = (r - x) ** 2 + (g - y) ** 2 + (b - z) ** 2;
      if (apart < least) [best, least] = [i, apart];
    });
    return best;
  };
  const rows = new Uint8Array((width + 1) * height); // each row begins with its filter: 0, none
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) {
    const c = pixels[y * width + x];
    if (!place.has(c)) place.set(c, nearest(c));
    rows[y * (width + 1) + 1 + x] = place.get(c);
  }
  const packed = new Uint8Array(await new Response(new Blob([rows]).stream().pipeThrough(new CompressionStream("deflate"))).arrayBuffer());

  const table = Uint32Array.from({length: 256}, (_, n) => {
    for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
    return n;
  });
  const crc = (bytes) => ~bytes.reduce((c, b) => table[(c ^ b) & 255] ^ (c >>> 8), ~0);
  const chunk = (name, data) => {
    const bytes = new Uint8Array(12 + data.length), view = new DataView(bytes.buffer);
    view.setUint32(0, data.length);
    bytes.set(new TextEncoder().encode(name), 4);
    bytes.set(data, 8);
    view.setUint32(8 + data.length, crc(bytes.subarray(4, 8 + data.length)));
    return bytes;
  };
  const head = new Uint8Array(13), view = new DataView(head.buffer);
  view.setUint32(0, width);
  view.setUint32(4, height);
  head.set([8, 3, 0, 0, 0], 8);
  const file = new Blob([
    Uint8Array.of(137, 80, 78, 71, 13, 10, 26, 10), chunk("IHDR", head),
    chunk("PLTE", Uint8Array.from(palette.flatMap(parts))), chunk("IDAT", packed), chunk("IEND", new Uint8Array()),
  ]);
  let text = "";
  for (const byte of new Uint8Array(await file.arrayBuffer())) text += String.fromCharCode(byte);
  return btoa(text);
}
"""  # the format: https://www.w3.org/TR/png-3/


class Camera:
    """Takes pictures of pages; *context* gets a blank page of its own for the work."""

    def __init__(self, context: BrowserContext) -> None:
        self._room: Page = context.new_page()

    def take(self, page: Page, file: Path, *, full: bool) -> None:
        """*page* as it stands into *file*."""
        shot = page.screenshot(full_page=full, animations="disabled", caret="hide")
        small = self._room.evaluate(_SMALL, base64.b64encode(shot).decode())
        file.write_bytes(base64.b64decode(small))

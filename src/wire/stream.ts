import type { Buffer } from "node:buffer";
import type { Readable, Writable } from "node:stream";
import type { ByteSink, ByteSource } from "./pipe.ts";

/** So much of one stream is read before all else gets its turn, in bytes: some runtimes read on as long as there is something. */
const FAIR_SHARE = 64 * 1024;

/** A child's output as bytes. It ends once, however the stream ends. */
export function sourceOf(stream: Readable): ByteSource {
  let paused = false;
  let resting = false;
  let taken = 0;
  const rest = (): void => {
    taken = 0;
    resting = true;
    stream.pause();
    setImmediate(() => {
      resting = false;
      if (!paused) stream.resume();
    });
  };
  return {
    read(onChunk, onEnd) {
      stream.on("data", (chunk: Buffer) => {
        taken += chunk.length;
        if (taken > FAIR_SHARE) rest();
        onChunk(chunk);
      });
      void endOf(stream).then(onEnd);
    },
    pause() {
      paused = true;
      stream.pause();
    },
    resume() {
      paused = false;
      if (!resting) stream.resume();
    },
  };
}

/** Settles when a stream brings no more. */
export function endOf(stream: Readable): Promise<void> {
  return new Promise((resolve) => {
    for (const event of ["end", "close", "error"]) stream.once(event, () => resolve());
  });
}

/** A child's stdin. That it broke is no error of a write: the child's end says so. */
export function sinkOf(stream: Writable): ByteSink {
  let alive = true;
  let release: (() => void) | undefined;
  stream.on("drain", () => release?.());
  for (const event of ["error", "close"]) {
    stream.on(event, () => {
      alive = false;
      release?.();
    });
  }
  return {
    write(bytes) {
      if (!alive || stream.write(bytes)) return undefined;
      return new Promise((resolve) => {
        release = resolve;
      });
    },
    end: () => void stream.end(),
  };
}

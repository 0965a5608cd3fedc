import type { Buffer } from "node:buffer";
import type { Readable, Writable } from "node:stream";
import { childSinkOf } from "../base/runtime.ts";
import { sinkOutput } from "../base/byte-streams.ts";
import type { ByteSink, ByteSource } from "../jsonrpc/pipe.ts";

/**
 * How much of one stream is read in one turn of the event loop, in bytes: some runtimes read on as long as there is
 * data.
 */
const FAIR_SHARE = 64 * 1024;

/** A child's stdout or stderr as a byte input. It reports the end once, whether by `end`, `close` or `error`. */
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

/** Settles when the stream has ended. */
export function endOf(stream: Readable): Promise<void> {
  return new Promise((resolve) => {
    for (const event of ["end", "close", "error"]) stream.once(event, () => resolve());
  });
}

/** Delay after a write before checking whether the child has closed its stdin, in ms. */
const CLOSURE_PAUSE = 100;

/**
 * A child's stdin as a byte output. A broken pipe is not an error of a write.
 * @param onBroken the child has closed its end
 */
export function sinkOf(stream: Writable, onBroken: () => void = () => {}): ByteSink {
  let alive = true;
  let release: (() => void) | undefined;
  const end = (): void => {
    alive = false;
    release?.();
  };
  const fail = (): void => {
    if (alive) onBroken();
    end();
  };
  stream.on("drain", () => release?.());
  stream.on("error", fail);
  stream.on("close", end);
  const direct = childSinkOf(stream);
  if (direct === undefined) {
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
  let looking = false;
  const look = (): void => {
    if (looking) return;
    looking = true;
    setTimeout(() => {
      looking = false;
      if (direct.isClosed()) fail();
    }, CLOSURE_PAUSE).unref();
  };
  const output = sinkOutput(direct, fail);
  return {
    write(bytes) {
      if (!alive) return undefined;
      look();
      const written = output.write(bytes);
      return (
        written &&
        new Promise((resolve) => {
          // A destroyed stream may never settle the write.
          release = resolve;
          void written.then(resolve);
        })
      );
    },
    end: () => void stream.end(),
    keepsNothing: true,
  };
}

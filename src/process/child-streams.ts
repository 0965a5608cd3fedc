import type { ByteOutput, ByteInput } from "../base/byte-streams.ts";
import type { Readable, Writable } from "node:stream";
import { type ReadShare, shareTurns } from "../base/peer-reader.ts";
import { bunChildStdinOf } from "../base/runtime.ts";
import { outputOfBunSink } from "../base/byte-streams.ts";

/**
 * A child's stdout or stderr as a byte input, which shares the turns of the event loop with other peers. It reports the
 * end once, whether by `end`, `close` or `error`.
 */
export function inputOfChild(stream: Readable, share?: ReadShare): ByteInput {
  return shareTurns(
    {
      read(onChunk, onEnd) {
        stream.on("data", onChunk);
        void streamEnd(stream).then(onEnd);
      },
      pause: () => void stream.pause(),
      resume: () => void stream.resume(),
    },
    share,
  );
}

/** Settles when the stream has ended. */
export function streamEnd(stream: Readable): Promise<void> {
  return new Promise((resolve) => {
    for (const event of ["end", "close", "error"]) stream.once(event, () => resolve());
  });
}

/** Delay after a write before checking whether the child has closed its stdin, in ms. */
const CLOSE_CHECK_DELAY = 100;

/**
 * A child's stdin as a byte output. Writes to a broken pipe do not fail: `onBroken` is called instead.
 * @param onBroken called when the child has closed its end of the pipe
 */
export function outputOfChild(stream: Writable, onBroken: () => void = () => {}): ByteOutput {
  let isOpen = true;
  let settleWrite: (() => void) | undefined;
  const end = (): void => {
    isOpen = false;
    settleWrite?.();
  };
  const fail = (): void => {
    if (isOpen) onBroken();
    end();
  };
  stream.on("drain", () => settleWrite?.());
  stream.on("error", fail);
  stream.on("close", end);
  const bunSink = bunChildStdinOf(stream);
  if (bunSink === undefined) {
    return {
      write(bytes) {
        if (!isOpen || stream.write(bytes)) return undefined;
        return new Promise((resolve) => {
          settleWrite = resolve;
        });
      },
      end: () => void stream.end(),
    };
  }
  let isCheckScheduled = false;
  const scheduleCloseCheck = (): void => {
    if (isCheckScheduled) return;
    isCheckScheduled = true;
    setTimeout(() => {
      isCheckScheduled = false;
      if (bunSink.isClosed()) fail();
    }, CLOSE_CHECK_DELAY).unref();
  };
  const output = outputOfBunSink(bunSink, fail);
  return {
    write(bytes) {
      if (!isOpen) return undefined;
      scheduleCloseCheck();
      const written = output.write(bytes);
      return (
        written &&
        new Promise((resolve) => {
          // A write to a destroyed stream may never call its callback.
          settleWrite = resolve;
          void written.then(resolve);
        })
      );
    },
    end: () => void stream.end(),
    retainsNoMemory: true,
  };
}

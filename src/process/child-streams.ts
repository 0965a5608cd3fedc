import type { ByteOutput, ByteInput } from "../base/byte-streams.ts";
import type { Buffer } from "node:buffer";
import type { Readable, Writable } from "node:stream";
import { bunChildStdinOf } from "../base/runtime.ts";
import { outputOfBunSink } from "../base/byte-streams.ts";

/**
 * Maximum number of bytes that are read from one stream in one turn of the event loop. Without this limit, some
 * runtimes read as long as there is data, and let nothing else run.
 */
const MAX_BYTES_PER_TURN = 64 * 1024;

/** A child's stdout or stderr as a byte input. It reports the end once, whether by `end`, `close` or `error`. */
export function inputOfChild(stream: Readable): ByteInput {
  let isPaused = false;
  let isYielding = false;
  let bytesThisTurn = 0;
  const yieldTurn = (): void => {
    bytesThisTurn = 0;
    isYielding = true;
    stream.pause();
    setImmediate(() => {
      isYielding = false;
      if (!isPaused) stream.resume();
    });
  };
  return {
    read(onChunk, onEnd) {
      stream.on("data", (chunk: Buffer) => {
        bytesThisTurn += chunk.length;
        if (bytesThisTurn > MAX_BYTES_PER_TURN) yieldTurn();
        onChunk(chunk);
      });
      void streamEnd(stream).then(onEnd);
    },
    pause() {
      isPaused = true;
      stream.pause();
    },
    resume() {
      isPaused = false;
      if (!isYielding) stream.resume();
    },
  };
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

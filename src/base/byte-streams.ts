import { Buffer } from "node:buffer";

/** A source of bytes: a child's stdout, or the hub's own stdin. */
export interface ByteInput {
  /** Starts reading; called once. The chunks belong to the receiver: see `ByteSlice`. */
  read(onChunk: (chunk: Buffer) => void, onEnd: () => void): void;
  pause(): void;
  resume(): void;
}

export interface ByteOutput {
  /**
   * Writes bytes.
   * @returns undefined if more may be written immediately; else a promise that settles when more may be written. It
   * never rejects. If the stream breaks, it settles, too, and later writes are discarded.
   */
  write(bytes: Uint8Array): Promise<void> | undefined;
  /** Ends the stream after all earlier writes. */
  end(): void;
  /**
   * After a complete write, the output has no reference to the bytes, so their memory may be detached or reused: see
   * `ByteSlice`.
   */
  readonly retainsNoMemory?: true | undefined;
}

export interface BunFileSink {
  write(bytes: Uint8Array): number | Promise<number>;
  flush(): number | Promise<number>;
  end(): number | Promise<number>;
}

/** A `ByteInput` that can be given up. */
export interface CancellableInput extends ByteInput {
  /** Closes the source; what was not read is lost. The end is reported. */
  cancel(): void;
}

/** While it is paused, one chunk is read ahead, so that the end is seen. */
export function inputOfWebStream(stream: ReadableStream<Uint8Array>): CancellableInput {
  const reader = stream.getReader();
  let receive: (chunk: Buffer) => void = () => {};
  let end = (): void => {};
  let isPaused = false;
  /** The chunk that arrived while reading was paused. */
  let held: Buffer | undefined;
  // Only a failed read is an end. An exception of `receive` is a defect, which must not look like the end.
  const readNext = (): void => void reader.read().then(step, () => end());
  const step = ({ value, done }: { value?: Uint8Array | undefined; done: boolean }): void => {
    if (done || value === undefined) {
      end();
      return;
    }
    const chunk = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    if (isPaused) {
      held = chunk;
      return;
    }
    receive(chunk);
    readNext();
  };
  const releaseHeld = (): void => {
    const chunk = held;
    if (isPaused || chunk === undefined) return;
    held = undefined;
    receive(chunk);
    readNext();
  };
  return {
    read(onChunk, onEnd) {
      receive = onChunk;
      end = onEnd;
      readNext();
    },
    pause() {
      isPaused = true;
    },
    resume() {
      isPaused = false;
      if (held !== undefined) queueMicrotask(releaseHeld);
    },
    cancel: () => void reader.cancel().catch(() => {}),
  };
}

/** @param onBroken called once with the error of the first write that fails */
export function outputOfBunSink(
  writer: BunFileSink,
  onBroken: (error: unknown) => void,
): ByteOutput {
  let isBroken = false;
  const fail = (error: unknown): void => {
    if (!isBroken) onBroken(error);
    isBroken = true;
  };
  return {
    write(bytes) {
      if (isBroken) return undefined;
      try {
        const written = writer.write(bytes);
        const flushed = writer.flush();
        // If the reader has closed the pipe, `write` may reject although `flush` does not.
        const isWritePending = written instanceof Promise;
        if (isWritePending) written.catch(fail);
        const completed =
          flushed instanceof Promise ? flushed : isWritePending ? written : undefined;
        return completed?.then(() => undefined, fail);
      } catch (error) {
        fail(error);
        return undefined;
      }
    },
    // A write is complete only when `flush` has handed all bytes to the system. After that, the sink does not read the
    // memory of these bytes any more.
    retainsNoMemory: true,
    end() {
      try {
        void Promise.resolve(writer.end()).catch(fail);
      } catch (error) {
        fail(error);
      }
    },
  };
}

export function inputOfNodeStream(stream: NodeJS.ReadStream): ByteInput {
  return {
    read(onChunk, onEnd) {
      let hasEnded = false;
      const end = (): void => {
        if (!hasEnded) onEnd();
        hasEnded = true;
      };
      stream.on("data", (chunk: Buffer) => onChunk(chunk));
      stream.on("end", end);
      stream.on("close", end);
      stream.on("error", end);
    },
    pause: () => void stream.pause(),
    resume: () => void stream.resume(),
  };
}

/** @param onBroken called once with the error of the first write that fails */
export function outputOfNodeStream(
  stream: NodeJS.WriteStream,
  onBroken: (error: unknown) => void,
): ByteOutput {
  let isBroken = false;
  let onDrain: (() => void) | undefined;
  stream.on("drain", () => onDrain?.());
  stream.on("error", (error) => {
    if (!isBroken) onBroken(error);
    isBroken = true;
    onDrain?.();
  });
  return {
    write(bytes) {
      if (isBroken || stream.write(bytes)) return undefined;
      return new Promise((resolve) => (onDrain = resolve));
    },
    end: () => void stream.end(),
  };
}

import { Buffer } from "node:buffer";

/** One interface over the byte streams of Bun, Node and the web. */

/** A source of chunks. It does not reuse the memory of a chunk after handing it over. */
export interface InputStream {
  read(onChunk: (chunk: Buffer) => void, onEnd: () => void): void;
  pause(): void;
  resume(): void;
}

/** A destination of bytes: `write` returns a promise when the reader is slow; see `ByteOutput` in `jsonrpc/pipe.ts`. */
export interface OutputStream {
  write(bytes: Uint8Array): Promise<void> | undefined;
  end(): void;
  readonly keepsNothing?: true | undefined;
}

/** Bun's `FileSink`. */
export interface FileSink {
  write(bytes: Uint8Array): number | Promise<number>;
  flush(): number | Promise<number>;
  end(): number | Promise<number>;
}

/** Reads a web stream. */
export function webInput(stream: ReadableStream<Uint8Array>): InputStream {
  let gate: { opened: Promise<void>; open: () => void } | undefined;
  const pump = async (onChunk: (chunk: Buffer) => void): Promise<void> => {
    const reader = stream.getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      if (gate !== undefined) await gate.opened;
      onChunk(Buffer.from(value.buffer, value.byteOffset, value.byteLength));
    }
  };
  return {
    read: (onChunk, onEnd) => void pump(onChunk).then(onEnd, onEnd),
    pause() {
      if (gate !== undefined) return;
      let open = (): void => {};
      const opened = new Promise<void>((resolve) => (open = resolve));
      gate = { opened, open };
    },
    resume() {
      gate?.open();
      gate = undefined;
    },
  };
}

/** Writes to a sink of Bun's. */
export function sinkOutput(writer: FileSink, onBroken: () => void): OutputStream {
  let broken = false;
  const fail = (): void => {
    if (!broken) onBroken();
    broken = true;
  };
  return {
    write(bytes) {
      if (broken) return undefined;
      try {
        const written = writer.write(bytes);
        const flushed = writer.flush();
        // If the reader is gone, `write` may reject although `flush` does not.
        const isKept = written instanceof Promise;
        if (isKept) written.catch(fail);
        const out = flushed instanceof Promise ? flushed : isKept ? written : undefined;
        return out?.then(() => undefined, fail);
      } catch {
        fail();
        return undefined;
      }
    },
    // A flush without a promise has handed all bytes to the system.
    keepsNothing: true,
    end() {
      void Promise.resolve(writer.end()).catch(fail);
    },
  };
}

/** Reads a Node stream. */
export function nodeInput(stream: NodeJS.ReadStream): InputStream {
  return {
    read(onChunk, onEnd) {
      let ended = false;
      const end = (): void => {
        if (!ended) onEnd();
        ended = true;
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

/** Writes to a Node stream. */
export function nodeOutput(stream: NodeJS.WriteStream, onBroken: () => void): OutputStream {
  let broken = false;
  let drained: (() => void) | undefined;
  stream.on("drain", () => drained?.());
  stream.on("error", () => {
    if (!broken) onBroken();
    broken = true;
    drained?.();
  });
  return {
    write(bytes) {
      if (broken || stream.write(bytes)) return undefined;
      return new Promise((resolve) => (drained = resolve));
    },
    end: () => void stream.end(),
  };
}

/**
 * The types of the fastest streams that Bun has for a program's own stdin and stdout, as far as they are used here.
 */
interface BunStreams {
  readonly stdin: { stream(): ReadableStream<Uint8Array> };
  readonly stdout: {
    writer(options: { highWaterMark: number }): {
      write(bytes: Uint8Array | string): number | Promise<number>;
      flush(): number | Promise<number>;
      end(): number | Promise<number>;
    };
  };
}

const { Bun: bun } = globalThis as unknown as { Bun: BunStreams };

export const input = bun.stdin.stream();
export const output = bun.stdout.writer({ highWaterMark: 1 << 16 });

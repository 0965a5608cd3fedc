import type { Buffer } from "node:buffer";

/** One client of a server over HTTP, whichever way that is. */
export interface Caller {
  /** Sends a request. @returns all that came back for it, and at least its answer. */
  call(text: string, id: number): Promise<Buffer>;
  /** The names of the tools that it lists now. */
  listTools(): Promise<string[]>;
  close(): void;
}

/** The beginning of what was said. */
export function excerpt(body: Buffer): string {
  return body.toString("utf8", 0, 300);
}

/** The names in an answer to `tools/list`; none if there was no such answer. */
export function namesIn(result: Readonly<Record<string, unknown>> | undefined): string[] {
  const { tools = [] } = (result ?? {}) as { tools?: { name: string }[] };
  return tools.map(({ name }) => name);
}

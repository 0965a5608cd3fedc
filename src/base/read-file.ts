import process from "node:process";

export type FileBytes = Uint8Array<ArrayBuffer>;

export type FileReadResult =
  | { readonly kind: "read"; readonly bytes: FileBytes }
  | { readonly kind: "absent" }
  /** `reason` continues a sentence that begins with the file's name: "is a folder", "may not be read …". */
  | { readonly kind: "refused"; readonly reason: string };

/**
 * Reads a regular file of at most `maxBytes`. Refuses anything else, because reading a pipe or device can block. Reads
 * synchronously, because loading the asynchronous file API would take longer than all reads at start-up together.
 */
export function readFileLimited(path: string, maxBytes: number): Promise<FileReadResult> {
  return Promise.resolve(readSync(path, maxBytes));
}

function readSync(path: string, maxBytes: number): FileReadResult {
  const { readFileSync, statSync } = process.getBuiltinModule("node:fs");
  try {
    const stats = statSync(path, { throwIfNoEntry: false });
    if (stats === undefined) return { kind: "absent" };
    if (stats.isDirectory()) return refused("is a folder, not a file");
    if (!stats.isFile()) return refused("is not a regular file");
    if (stats.size > maxBytes) return refused(`is longer than ${maxBytes} bytes`);
    return { kind: "read", bytes: new Uint8Array(readFileSync(path)) };
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "unknown error";
    if (code === "ENOENT" || code === "ENOTDIR") return { kind: "absent" };
    if (code === "EACCES" || code === "EPERM")
      return refused("may not be read (permission denied)");
    return refused(`cannot be read (${code})`);
  }
}

/** Decodes UTF-8. @returns the text without a byte order mark; undefined if the bytes are not UTF-8 */
export function decodeUtf8(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

function refused(reason: string): FileReadResult {
  return { kind: "refused", reason };
}

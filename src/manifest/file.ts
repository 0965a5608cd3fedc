import { readFile, stat } from "node:fs/promises";

export type Bytes = Uint8Array<ArrayBuffer>;

export type ReadResult =
  | { readonly kind: "read"; readonly bytes: Bytes }
  | { readonly kind: "absent" }
  /** `reason` goes after the file's name: "is a folder", "may not be read …". */
  | { readonly kind: "refused"; readonly reason: string };

/** Reads a regular file of at most `maxBytes`. Anything else is refused, so that no pipe or device can block. */
export async function readSmall(path: string, maxBytes: number): Promise<ReadResult> {
  try {
    const { size, isFolder, isRegular } = await inspect(path);
    if (isFolder) return refuse("is a folder, not a file");
    if (!isRegular) return refuse("is not a regular file");
    if (size > maxBytes) return refuse(`is longer than ${maxBytes} bytes`);
    return { kind: "read", bytes: new Uint8Array(await readFile(path)) };
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "unknown error";
    if (code === "ENOENT" || code === "ENOTDIR") return { kind: "absent" };
    if (code === "EACCES" || code === "EPERM") return refuse("may not be read (permission denied)");
    return refuse(`cannot be read (${code})`);
  }
}

/** @returns the text without a byte order mark, undefined if the bytes are not UTF-8. */
export function decode(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

async function inspect(path: string) {
  const stats = await stat(path);
  return { size: stats.size, isFolder: stats.isDirectory(), isRegular: stats.isFile() };
}

function refuse(reason: string): ReadResult {
  return { kind: "refused", reason };
}

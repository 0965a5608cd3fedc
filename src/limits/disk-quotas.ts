import { join } from "node:path";
import { textOf, utf8 } from "../base/bytes.ts";
import { readPrivate, replacePrivate } from "../base/private-files.ts";
import { withFileLock, writeErrorOf } from "../process/file-lock.ts";
import type { QuotaStorage } from "./quota-book.ts";

/** Never aborted: calls are stored even if the hub ends. */
const NEVER = new AbortController().signal;
/** Maximum size of the file, in bytes. */
const MAX_STORED = 16 * 1024 * 1024;
/** How long a hub waits for others that store their calls, in ms. */
const LOCK_WAIT = 5000;

/**
 * Quotas in the file `quotas.json` (mode 0600) of the state folder. All hubs of this user share them.
 * @param manifest the identity of the manifest
 */
export function diskQuotas(folder: string, manifest: string): QuotaStorage {
  const path = join(folder, "quotas.json");
  const read = async (): Promise<string | undefined> => {
    const bytes = await readPrivate(path, MAX_STORED);
    return bytes && textOf(bytes);
  };
  return {
    manifest,
    read,
    update: (change) =>
      withFileLock(
        `${path}.lock`,
        NEVER,
        async () => {
          await replacePrivate(path, utf8(change(await read()))).catch((error: unknown) => {
            throw writeErrorOf(folder, error);
          });
        },
        { waitTimeout: LOCK_WAIT },
      ),
  };
}

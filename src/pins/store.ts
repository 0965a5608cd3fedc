import { Buffer } from "node:buffer";
import { HubError } from "../base/errors.ts";
import { sha256Hex } from "../approval/remembered.ts";
import type { Hmac } from "../snapshot/hmac.ts";
import {
  type AcceptedDigests,
  type Baseline,
  digestsOf,
  formatBaseline,
  parseBaseline,
} from "./baseline.ts";

/** A file that several processes share, with the version of its content. */
export interface BaselineFile {
  /** @returns undefined if there is none; no bytes if it cannot be read. Never rejects. */
  read(): Promise<Uint8Array | undefined>;
  /** Changes with each change of the content. Never rejects. */
  version(): Promise<string>;
  /** Replaces the content while other processes are locked out. @throws {HubError} storeBroken or storeBusy */
  update(change: (bytes: Uint8Array | undefined) => Promise<Uint8Array>): Promise<void>;
  /** @returns whether there was one. @throws {HubError} storeBroken or storeBusy */
  remove(): Promise<boolean>;
}

/** Where baselines are kept. */
export interface BaselineStorage {
  /** The baseline with this key, whether there is one or not. */
  file(key: string): BaselineFile;
  /** The keys of all baselines. Never rejects. */
  keys(): Promise<readonly string[]>;
  /** Changes whenever a baseline is added, replaced or removed. Never rejects. */
  version(): Promise<string>;
  /** The HMAC with the key of this installation. @throws {Error} if there is no key and none can be made */
  hmac(): Promise<Hmac>;
}

/** The accepted digests of a server; `damaged`: there is a baseline, but it cannot be read. */
export type ReadDigests = AcceptedDigests | "none" | "damaged";

/** Number of files that are read or written at once: all servers of a hub may be listed in the same moment. */
const MAX_AT_ONCE = 8;

/** The baselines of servers. All hubs and commands of a user share them. */
export class BaselineStore {
  readonly #storage: BaselineStorage;
  #atOnce = 0;
  readonly #waiting: (() => void)[] = [];
  #hmac: Promise<Hmac> | undefined;
  readonly #digests = new Map<
    string,
    { readonly version: string; readonly digests: ReadDigests }
  >();

  constructor(storage: BaselineStorage) {
    this.#storage = storage;
  }

  /**
   * The key of a server's baseline.
   * @param identity the server's identity; `server`: its name in the manifest
   * @throws {Error} if the installation has no key, and none can be made
   */
  async keyOf(identity: string, server: string): Promise<string> {
    this.#hmac ??= this.#storage.hmac();
    const hmac = await this.#hmac.catch((error: unknown) => {
      this.#hmac = undefined;
      throw error;
    });
    return hmac(Buffer.from(JSON.stringify(["pins", identity, server])));
  }

  /** The accepted digests. Never rejects. */
  async digests(key: string): Promise<ReadDigests> {
    const file = this.#storage.file(key);
    const version = await file.version();
    const known = this.#digests.get(key);
    if (known?.version === version) return known.digests;
    const baseline = await this.read(key);
    const digests = typeof baseline === "string" ? baseline : await digestsOf(baseline);
    this.#digests.set(key, { version, digests });
    return digests;
  }

  /** The whole baseline. Never rejects. */
  async read(key: string): Promise<Baseline | "none" | "damaged"> {
    return this.#inTurn(async () => parsed(await this.#storage.file(key).read()));
  }

  /**
   * Changes a baseline while other processes are locked out.
   * @param change gets `damaged` if the baseline cannot be read; it may throw
   * @throws {HubError} storeBroken or storeBusy; what `change` throws
   */
  async update(
    key: string,
    change: (baseline: Baseline | "none" | "damaged") => Baseline | Promise<Baseline>,
  ): Promise<void> {
    const file = this.#storage.file(key);
    await this.#inTurn(() =>
      file.update(async (bytes) => formatBaseline(await change(await parsed(bytes)))),
    );
    this.#digests.delete(key);
  }

  /** Uses a file when fewer than `MAX_AT_ONCE` are in use, in the order of the calls. */
  async #inTurn<Result>(use: () => Promise<Result>): Promise<Result> {
    if (this.#atOnce === MAX_AT_ONCE)
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    else this.#atOnce++;
    try {
      return await use();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#atOnce--;
      else next();
    }
  }

  /**
   * Forgets the baselines of a server under all of its identities, and under these keys, whether readable or not.
   * @returns whether there was one
   * @throws {HubError} storeBroken or storeBusy
   */
  async forget(server: string, keys: readonly string[]): Promise<boolean> {
    let isFound = false;
    for (const key of new Set([...(await this.#storage.keys()), ...keys])) {
      const baseline = keys.includes(key) ? undefined : await this.read(key);
      if (baseline !== undefined && (typeof baseline === "string" || baseline.server !== server))
        continue;
      isFound = (await this.#storage.file(key).remove()) || isFound;
      this.#digests.delete(key);
    }
    return isFound;
  }

  /** Whether nothing was ever accepted. Never rejects. */
  async isEmpty(): Promise<boolean> {
    return (await this.#storage.keys()).length === 0;
  }

  /** Changes whenever a baseline has changed. Never rejects. */
  version(): Promise<string> {
    return this.#storage.version();
  }
}

async function parsed(bytes: Uint8Array | undefined): Promise<Baseline | "none" | "damaged"> {
  return bytes === undefined ? "none" : ((await parseBaseline(bytes)) ?? "damaged");
}

/** The error for a baseline that cannot be read. */
export function damagedBaseline(server: string): HubError {
  const text = `What was accepted of server "${server}" cannot be read. To accept what it lists now: toolmux pins accept ${server} --all`;
  return new HubError("storeBroken", text, { server });
}

/** A store that keeps baselines in memory only. */
export function memoryBaselines(): BaselineStore {
  const files = new Map<string, Uint8Array>();
  let changes = 0;
  let last: Promise<void> = Promise.resolve();
  return new BaselineStore({
    file: (key) => ({
      read: () => Promise.resolve(files.get(key)),
      version: () => Promise.resolve(`${files.has(key)} ${changes}`),
      update: (change) => {
        // One after another, as with a lock.
        const update = last.then(async () => {
          files.set(key, await change(files.get(key)));
          changes++;
        });
        last = update.catch(() => {});
        return update;
      },
      remove: () => {
        changes++;
        return Promise.resolve(files.delete(key));
      },
    }),
    keys: () => Promise.resolve([...files.keys()]),
    version: () => Promise.resolve(String(changes)),
    hmac: () => Promise.resolve(sha256Hex),
  });
}

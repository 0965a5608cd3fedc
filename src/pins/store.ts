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

/** A text that several processes share, with the version of its content. */
export interface BaselineFile {
  /** @returns undefined if there is none; "" if it cannot be read. Never rejects. */
  read(): Promise<string | undefined>;
  /** Changes with each change of the content. Never rejects. */
  version(): Promise<string>;
  /** Replaces the text while other processes are locked out. @throws {HubError} storeBroken or storeBusy */
  update(change: (text: string | undefined) => string): Promise<void>;
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

/** The baselines of servers. All hubs and commands of a user share them. */
export class BaselineStore {
  readonly #storage: BaselineStorage;
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
    const digests = typeof baseline === "string" ? baseline : digestsOf(baseline);
    this.#digests.set(key, { version, digests });
    return digests;
  }

  /** The whole baseline. Never rejects. */
  async read(key: string): Promise<Baseline | "none" | "damaged"> {
    const text = await this.#storage.file(key).read();
    return text === undefined ? "none" : (parseBaseline(text) ?? "damaged");
  }

  /**
   * Changes a baseline while other processes are locked out.
   * @param change gets `damaged` if the baseline cannot be read; it may throw
   * @throws {HubError} storeBroken or storeBusy; what `change` throws
   */
  async update(
    key: string,
    change: (baseline: Baseline | "none" | "damaged") => Baseline,
  ): Promise<void> {
    await this.#storage.file(key).update((text) => {
      const read = text === undefined ? "none" : (parseBaseline(text) ?? "damaged");
      return formatBaseline(change(read));
    });
    this.#digests.delete(key);
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

  /** Changes whenever a baseline has changed. Never rejects. */
  version(): Promise<string> {
    return this.#storage.version();
  }
}

/** The error for a baseline that cannot be read. */
export function damagedBaseline(server: string): HubError {
  const text = `What was accepted of server "${server}" cannot be read. To accept what it lists now: toolmux pins accept ${server} --all`;
  return new HubError("storeBroken", text, { server });
}

/** A store that keeps baselines in memory only. */
export function memoryBaselines(): BaselineStore {
  const texts = new Map<string, string>();
  let changes = 0;
  return new BaselineStore({
    file: (key) => ({
      read: () => Promise.resolve(texts.get(key)),
      version: () => Promise.resolve(`${texts.has(key)} ${changes}`),
      update: async (change) => {
        texts.set(key, change(texts.get(key)));
        changes++;
      },
      remove: () => {
        changes++;
        return Promise.resolve(texts.delete(key));
      },
    }),
    keys: () => Promise.resolve([...texts.keys()]),
    version: () => Promise.resolve(String(changes)),
    hmac: () => Promise.resolve(sha256Hex),
  });
}

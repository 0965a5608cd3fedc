import { HubError } from "../errors.ts";
import type { Env } from "../manifest/folders.ts";
import { type Keyring, openKeyring } from "./keyring.ts";

/** The keychain of this system, which may not be there, or not answer. */
export interface Keychain {
  /** @returns undefined if there is none of that name, or the keychain cannot be used */
  get(name: string): Promise<string | undefined>;
  /** @throws {HubError} storeBroken if the keychain cannot be used */
  set(name: string, value: string): Promise<void>;
  /** @returns whether there was one @throws {HubError} as `set` */
  remove(name: string): Promise<boolean>;
  /** Why it cannot be used, as a sentence's end; undefined as long as nothing is known against it. */
  readonly fault: string | undefined;
}

/** As whose things are kept. */
const SERVICE = "toolmux";

/** How long it may take, in ms: a person may have to unlock it, but nobody may be there to see that it asks. */
const LIMIT = 10_000;

/** `TOOLMUX_KEYCHAIN=off` in `env` says not to touch it. */
export function openKeychain(env: Env, open = openKeyring, limit = LIMIT): Keychain {
  const isOff = env["TOOLMUX_KEYCHAIN"] === "off";
  return new SystemKeychain(
    open,
    limit,
    isOff ? "it is switched off (TOOLMUX_KEYCHAIN)" : undefined,
  );
}

class SystemKeychain implements Keychain {
  readonly #open: () => Promise<Keyring>;
  readonly #limit: number;
  #keyring: Promise<Keyring> | undefined;
  /** What was found once holds for this process: nobody is to wait for the same thing twice. */
  #fault: string | undefined;

  constructor(open: () => Promise<Keyring>, limit: number, fault: string | undefined) {
    this.#open = open;
    this.#limit = limit;
    this.#fault = fault;
  }

  get fault(): string | undefined {
    return this.#fault;
  }

  async get(name: string): Promise<string | undefined> {
    return this.#try((keyring) => keyring.get(SERVICE, name)).catch(() => undefined);
  }

  set(name: string, value: string): Promise<void> {
    return this.#try((keyring) => keyring.set(SERVICE, name, value));
  }

  remove(name: string): Promise<boolean> {
    return this.#try((keyring) => keyring.remove(SERVICE, name));
  }

  async #try<T>(use: (keyring: Keyring) => Promise<T>): Promise<T> {
    if (this.#fault !== undefined) throw unusable(this.#fault);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<never>((_, reject) => {
      const text = `it did not answer within ${this.#limit / 1000} s`;
      timer = setTimeout(() => reject(new Error(text)), this.#limit);
    });
    try {
      this.#keyring ??= this.#open();
      return await Promise.race([this.#keyring.then(use), late]);
    } catch (error) {
      this.#fault = explain(error);
      throw unusable(this.#fault);
    } finally {
      clearTimeout(timer);
    }
  }
}

/** In the system's words, which hold no value. */
function explain(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  const isMissing = /@napi-rs\/keyring/.test(text);
  if (isMissing) return "on this runtime it needs the package @napi-rs/keyring";
  return text.split("\n", 1)[0]?.slice(0, 200) ?? "";
}

function unusable(fault: string): HubError {
  return new HubError("storeBroken", `The keychain of this system cannot be used: ${fault}.`);
}

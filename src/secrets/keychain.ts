import { type Clock, systemClock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { Env } from "../base/paths.ts";
import { systemKeychain } from "../base/runtime.ts";

/** What the system itself keeps secrets in, by service and name. Rejects where there is none. */
export interface Keyring {
  get(service: string, name: string): Promise<string | undefined>;
  set(service: string, name: string, value: string): Promise<void>;
  /** @returns whether there was one */
  remove(service: string, name: string): Promise<boolean>;
}

/** A package that reaches it where the runtime does not, if people have installed it. */
interface KeyringPackage {
  readonly AsyncEntry: new (
    service: string,
    name: string,
  ) => {
    getPassword(): Promise<string | null | undefined>;
    setPassword(value: string): Promise<void>;
    deletePassword(): Promise<unknown>;
  };
}

/** By what the runtime has built in, or else by the package `@napi-rs/keyring`. Rejects if there is neither. */
export async function openKeyring(): Promise<Keyring> {
  if (systemKeychain !== undefined) {
    const secrets = systemKeychain();
    return {
      get: async (service, name) => (await secrets.get({ service, name })) ?? undefined,
      set: (service, name, value) => secrets.set({ service, name, value }),
      remove: (service, name) => secrets.delete({ service, name }),
    };
  }
  // A name that no bundler follows: it is no dependency.
  const name = "@napi-rs/keyring";
  return wrapPackage((await import(name)) as KeyringPackage);
}

/** The package as a Keyring. */
export function wrapPackage({ AsyncEntry }: KeyringPackage): Keyring {
  const get = async (service: string, name: string): Promise<string | undefined> =>
    (await new AsyncEntry(service, name).getPassword()) ?? undefined;
  return {
    get,
    set: (service, name, value) => new AsyncEntry(service, name).setPassword(value),
    remove: async (service, name) => {
      // What there is not, some of its platforms refuse to delete.
      if ((await get(service, name)) === undefined) return false;
      await new AsyncEntry(service, name).deletePassword();
      return true;
    },
  };
}

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

/** After a failure it is left alone for so long, in ms: twice as long after each further one, up to the last. */
const PAUSE = { first: 30_000, last: 600_000 };

/** `TOOLMUX_KEYCHAIN=off` in `env` says not to touch it. */
export function openKeychain(
  env: Env,
  open = openKeyring,
  limit = LIMIT,
  clock: Clock = systemClock,
): Keychain {
  return env["TOOLMUX_KEYCHAIN"] === "off" ? OFF : new SystemKeychain(open, limit, clock);
}

const OFF: Keychain = {
  fault: "it is switched off (TOOLMUX_KEYCHAIN)",
  get: () => Promise.resolve(undefined),
  set: () => Promise.reject(unusable(OFF.fault)),
  remove: () => Promise.reject(unusable(OFF.fault)),
};

class SystemKeychain implements Keychain {
  readonly #open: () => Promise<Keyring>;
  readonly #limit: number;
  readonly #clock: Clock;
  #keyring: Promise<Keyring> | undefined;
  /** Why the last use failed. It may have been locked only then, as at a login. */
  #fault: string | undefined;
  /** How long it is left alone after the next failure, in ms. */
  #pause = PAUSE.first;
  /** When it may be tried again, by the clock. */
  #retry = 0;

  constructor(open: () => Promise<Keyring>, limit: number, clock: Clock) {
    this.#open = open;
    this.#limit = limit;
    this.#clock = clock;
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

  #postpone(): void {
    this.#retry = this.#clock.now() + this.#pause;
    this.#pause = Math.min(2 * this.#pause, PAUSE.last);
  }

  async #try<T>(use: (keyring: Keyring) => Promise<T>): Promise<T> {
    if (this.#fault !== undefined) {
      if (this.#clock.now() < this.#retry) throw unusable(this.#fault);
      // One use finds out for all: nobody else waits for the same thing meanwhile.
      this.#postpone();
    }
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<never>((_, reject) => {
      const text = `it did not answer within ${this.#limit / 1000} s`;
      timer = setTimeout(() => reject(new Error(text)), this.#limit);
    });
    try {
      this.#keyring ??= this.#open();
      const found = await Promise.race([this.#keyring.then(use), late]);
      this.#fault = undefined;
      this.#pause = PAUSE.first;
      return found;
    } catch (error) {
      // Several uses may have begun before the first of them failed.
      if (this.#fault === undefined) this.#postpone();
      this.#keyring = undefined;
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

function unusable(fault: string | undefined): HubError {
  return new HubError(
    "storeBroken",
    `The keychain of this system cannot be used: ${fault ?? "it failed"}.`,
  );
}

import { formatDuration } from "../base/format.ts";
import { type Clock, systemClock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { Env } from "../base/paths.ts";
import { systemKeychain } from "../base/runtime.ts";

/**
 * The operating system's keychain. A service and a name identify an entry. The methods reject if the keychain cannot
 * be used.
 */
export interface Keyring {
  get(service: string, name: string): Promise<string | undefined>;
  set(service: string, name: string, value: string): Promise<void>;
}

/** The part of `@napi-rs/keyring` that is used. */
interface KeyringPackage {
  readonly AsyncEntry: new (
    service: string,
    name: string,
  ) => {
    getPassword(): Promise<string | null | undefined>;
    setPassword(value: string): Promise<void>;
  };
}

/** Opens the keychain with the runtime's API, else with the package `@napi-rs/keyring`. Rejects if there is neither. */
export async function openKeyring(): Promise<Keyring> {
  if (systemKeychain !== undefined) {
    const secrets = systemKeychain();
    return {
      get: async (service, name) => (await secrets.get({ service, name })) ?? undefined,
      set: (service, name, value) => secrets.set({ service, name, value }),
    };
  }
  // The name is a variable, so that bundlers do not follow the import: the package is not a dependency.
  const name = "@napi-rs/keyring";
  return keyringFromPackage((await import(name)) as KeyringPackage);
}

/** Adapts the package `@napi-rs/keyring` to `Keyring`. */
export function keyringFromPackage({ AsyncEntry }: KeyringPackage): Keyring {
  return {
    get: async (service, name) => (await new AsyncEntry(service, name).getPassword()) ?? undefined,
    set: (service, name, value) => new AsyncEntry(service, name).setPassword(value),
  };
}

/**
 * The system's keychain, which may be absent, locked or slow. It holds the key of the encrypted file (`Vault`).
 */
export interface Keychain {
  /** @returns undefined if there is no such entry, or the keychain cannot be used */
  get(name: string): Promise<string | undefined>;
  /** @throws {HubError} storeBroken if the keychain cannot be used */
  set(name: string, value: string): Promise<void>;
  /** The reason why the last operation failed, as a clause; undefined if it succeeded, or if there was none yet. */
  readonly fault: string | undefined;
}

const SERVICE_NAME = "toolmux";

/**
 * Time limit for one operation, in ms. The user may have to unlock the keychain, but there may be nobody to see its
 * prompt.
 */
const KEYCHAIN_TIMEOUT = 10_000;

/**
 * How long the keychain is not used after a failure, in ms: `first`, doubled with each further failure, up to `max`.
 */
const RETRY_DELAY = { first: 30_000, max: 600_000 };

/** Returns the system's keychain; `TOOLMUX_KEYCHAIN=off` in `env` disables it. */
export function openKeychain(
  env: Env,
  open = openKeyring,
  timeout = KEYCHAIN_TIMEOUT,
  clock: Clock = systemClock,
): Keychain {
  return env["TOOLMUX_KEYCHAIN"] === "off"
    ? DISABLED_KEYCHAIN
    : new SystemKeychain(open, timeout, clock);
}

const DISABLED_KEYCHAIN: Keychain = {
  fault: "it is disabled (TOOLMUX_KEYCHAIN=off)",
  get: () => Promise.resolve(undefined),
  set: () => Promise.reject(unusableError(DISABLED_KEYCHAIN.fault)),
};

class SystemKeychain implements Keychain {
  readonly #open: () => Promise<Keyring>;
  readonly #timeout: number;
  readonly #clock: Clock;
  #keyring: Promise<Keyring> | undefined;
  /** The reason why the last operation failed. It may be temporary, as with a keychain that is locked until login. */
  #fault: string | undefined;
  /** How long the keychain is not used after the next failure, in ms. */
  #retryDelay = RETRY_DELAY.first;
  /** The time of `#clock`, in ms, from which the keychain may be tried again. */
  #retryAt = 0;

  constructor(open: () => Promise<Keyring>, timeout: number, clock: Clock) {
    this.#open = open;
    this.#timeout = timeout;
    this.#clock = clock;
  }

  get fault(): string | undefined {
    return this.#fault;
  }

  async get(name: string): Promise<string | undefined> {
    return this.#run((keyring) => keyring.get(SERVICE_NAME, name)).catch(() => undefined);
  }

  set(name: string, value: string): Promise<void> {
    return this.#run((keyring) => keyring.set(SERVICE_NAME, name, value));
  }

  #postponeRetry(): void {
    this.#retryAt = this.#clock.now() + this.#retryDelay;
    this.#retryDelay = Math.min(2 * this.#retryDelay, RETRY_DELAY.max);
  }

  async #run<T>(operation: (keyring: Keyring) => Promise<T>): Promise<T> {
    if (this.#fault !== undefined) {
      if (this.#clock.now() < this.#retryAt) throw unusableError(this.#fault);
      // The next retry is postponed first, so that only this operation tries the keychain; meanwhile all others fail
      // at once.
      this.#postponeRetry();
    }
    let timer: ReturnType<typeof setTimeout> | undefined;
    const timeout = new Promise<never>((_, reject) => {
      const text = `it did not answer within ${formatDuration(this.#timeout)}`;
      timer = setTimeout(() => reject(new Error(text)), this.#timeout);
    });
    try {
      this.#keyring ??= this.#open();
      const result = await Promise.race([this.#keyring.then(operation), timeout]);
      this.#fault = undefined;
      this.#retryDelay = RETRY_DELAY.first;
      return result;
    } catch (error) {
      // If several concurrent operations fail, only the first failure starts the delay.
      if (this.#fault === undefined) this.#postponeRetry();
      this.#keyring = undefined;
      this.#fault = describeError(error);
      throw unusableError(this.#fault);
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Describes an error of the keychain. The text contains no secret value. */
function describeError(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  const isMissing = /@napi-rs\/keyring/.test(text);
  if (isMissing) return "this runtime needs the package @napi-rs/keyring for it";
  return text.split("\n", 1)[0]?.slice(0, 200) ?? "";
}

function unusableError(fault: string | undefined): HubError {
  return new HubError(
    "storeBroken",
    `The keychain of this system cannot be used: ${fault ?? "it failed"}.`,
  );
}

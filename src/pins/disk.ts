import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { SharedFile } from "../approval/disk.ts";
import { type Hmac, obtainHmac } from "../snapshot/hmac.ts";
import { type BaselineFile, BaselineStore, type BaselineStorage } from "./store.ts";

/** Maximum size of a baseline that is read, in bytes: more than the limits of `withAccepted` let it become. */
const MAX_BASELINE = 48 * 1024 * 1024;

const FILE_NAME = /^([0-9a-f]{64})\.json$/;

function baselineFile(path: string): BaselineFile {
  const file = new SharedFile(path, MAX_BASELINE);
  return {
    read: () => file.readBytes(),
    version: () => file.version(),
    update: (change) => file.updateBytes(change),
    remove: () => file.remove(),
  };
}

/**
 * Baselines in the folder `pins` of the state folder, one file (mode 0600) for each server. All hubs of this user share
 * them.
 */
export function diskBaselines(stateFolder: string): BaselineStore {
  return new BaselineStore(new BaselineFolder(stateFolder));
}

class BaselineFolder implements BaselineStorage {
  readonly #stateFolder: string;
  readonly #folder: string;
  readonly #files = new Map<string, BaselineFile>();

  constructor(stateFolder: string) {
    this.#stateFolder = stateFolder;
    this.#folder = join(stateFolder, "pins");
  }

  file(key: string): BaselineFile {
    const file = this.#files.get(key) ?? baselineFile(join(this.#folder, `${key}.json`));
    this.#files.set(key, file);
    return file;
  }

  async keys(): Promise<readonly string[]> {
    const names = await readdir(this.#folder).catch(() => []);
    return names.flatMap((name) => FILE_NAME.exec(name)?.[1] ?? []);
  }

  /** Each change of a baseline replaces its file, which changes the folder. */
  async version(): Promise<string> {
    return stat(this.#folder, { bigint: true }).then(
      ({ ino, mtimeNs }) => `${ino} ${mtimeNs}`,
      () => "",
    );
  }

  hmac(): Promise<Hmac> {
    return obtainHmac(this.#stateFolder);
  }
}

import process from "node:process";
import { runtimeName } from "../../base/runtime.ts";
import { VERSION } from "../../base/version.ts";

/** `toolmux version`: prints version, runtime and platform in one line. */
export function version(): Promise<number> {
  console.log(`toolmux ${VERSION} (${runtimeName}, ${process.platform} ${process.arch})`);
  return Promise.resolve(0);
}

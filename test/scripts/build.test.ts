import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { after, describe, it } from "node:test";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/** bun builds. */
const skip = "Bun" in globalThis ? false : "runs on bun only";
const LIMIT = { timeout: 60_000, skip };

/** The platform whose executable is made of the very bun that builds, so that nothing is downloaded. */
const OWN = `${process.platform}-${process.arch}`;

describe("the build", () => {
  let place = "";

  /** A folder to build in, copied when a test first asks: bun gives a hook only 5 s, whatever it is told. */
  function clone(): string {
    if (place !== "") return join(place, "one");
    place = mkdtempSync(join(tmpdir(), "toolmux-build-"));
    const own = [
      "package.json",
      "tsconfig.json",
      "toolmux.schema.json",
      "scripts",
      "src",
      "plugins",
    ];
    for (const file of [...own, ...portablePackages()])
      cpSync(join(ROOT, file), join(place, "one", file), { recursive: true, filter: isRead });
    return join(place, "one");
  }

  after(() => {
    if (place !== "") rmSync(place, { recursive: true, force: true });
  });

  it("makes the same bytes in another folder", LIMIT, () => {
    const one = clone();
    const other = join(place, "another/and/deeper");
    const make = (folder: string): string => {
      assert.equal(build(folder, [`--target=${OWN}`]).stderr, "");
      return hash(join(folder, `dist/toolmux-${OWN}`));
    };
    const first = make(one);
    // Moved, not copied: so many files take long to write.
    mkdirSync(dirname(other), { recursive: true });
    renameSync(one, other);
    try {
      rmSync(join(other, "dist"), { recursive: true });
      assert.equal(make(other), first);
    } finally {
      renameSync(other, one);
    }
  });

  it("lists the checksums of the executables that there are, in order of names", LIMIT, () => {
    const dist = join(clone(), "dist");
    rmSync(dist, { recursive: true, force: true });
    mkdirSync(dist);
    const names = ["toolmux", "toolmux-darwin-arm64", "toolmux-linux-x64"];
    for (const name of [...names.toReversed(), "toolmux.map", "else"])
      writeFileSync(join(dist, name), `${name} as built now`);
    const assertListed = (listed: readonly string[]): void => {
      build(clone(), ["--target=node"]);
      const sums = listed.map((name) => `${hash(join(dist, name))}  ${name}\n`).join("");
      assert.equal(readFileSync(join(dist, "SHA256SUMS"), "utf8"), sums);
    };
    assertListed(names);
    rmSync(join(dist, "toolmux-linux-x64"));
    writeFileSync(join(dist, "toolmux"), "built again");
    assertListed(names.slice(0, 2));
  });

  it("changes nothing, and says why, if one of its targets cannot be had", LIMIT, () => {
    const dist = join(clone(), "dist");
    rmSync(dist, { recursive: true, force: true });
    build(clone(), ["--target=node"]);
    const files = readdirSync(dist, { encoding: "utf8", recursive: true }).toSorted();
    // Nothing of bun's is cached in an empty folder, and nothing listens at that port.
    const cache = { BUN_INSTALL_CACHE_DIR: join(place, "cache") };
    const unreachable = { ...cache, HTTPS_PROXY: "http://127.0.0.1:1" };
    const targets = [`--target=${OWN}`, "--target=linux-x64-musl", "--target=node"];
    const { status, stdout, stderr } = build(clone(), targets, unreachable);
    assert.deepEqual([status, stdout], [1, ""]);
    const why = /^build: linux-x64-musl cannot be built; dist stays as it was\.\n.*download/i;
    assert.match(stderr, why);
    assert.deepEqual(readdirSync(dist, { encoding: "utf8", recursive: true }).toSorted(), files);
  });

  it("names all targets when it is asked for one that there is not", LIMIT, () => {
    const { status, stderr } = build(clone(), ["--target=linux-x64", "--target=plan9"]);
    const all = "all, darwin-arm64, darwin-x64, linux-arm64, linux-x64, linux-x64-musl, node";
    assert.deepEqual([status, stderr], [1, `build: no target "plan9"; there are ${all}\n`]);
  });
});

/** The folders of all packages but programs for one platform, which are large. */
function portablePackages(): string[] {
  const { packages } = JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8")) as {
    packages: Record<string, { os?: string[] }>;
  };
  return Object.keys(packages).filter((path) => path !== "" && !packages[path]?.os);
}

/** Whether a build can want it: folders, code and JSON, which is a third of what packages hold. */
function isRead(path: string): boolean {
  return (
    statSync(path).isDirectory() ||
    /(?:(?<!\.d)\.(?:[cm]?js|tsx?|json|css|html)|\/LICENSE)$/.test(path)
  );
}

/** Runs the build in a clone, without what the surroundings say of proxies and caches. */
function build(folder: string, args: readonly string[], env: Record<string, string> = {}) {
  const { PATH = "", HOME = "" } = process.env;
  const options = { cwd: folder, env: { PATH, HOME, ...env }, encoding: "utf8" } as const;
  return spawnSync(process.execPath, ["scripts/build.ts", ...args], options);
}

function hash(file: string): string {
  return createHash("sha256").update(readFileSync(file)).digest("hex");
}

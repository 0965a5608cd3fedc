import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import process from "node:process";
import { after, describe, it } from "node:test";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

const PACKAGES = join(ROOT, "node_modules");

const LIMIT = { timeout: 180_000 };

/** An import of a package, with its name. */
const IMPORT = /(?:from |import |import\()"((?:@[^"/]+\/)?[^"./][^"/]*)/g;

/** The platform whose executable is made of the very bun that builds, so that nothing is downloaded. */
const OWN = `${process.platform}-${process.arch}`;

describe("the build", () => {
  let place = "";
  let folder = "";

  /** A folder to build in, copied when a test first asks: bun gives a hook only 5 s, whatever it is told. */
  function clone(): string {
    if (folder !== "") return folder;
    place = mkdtempSync(join(tmpdir(), "toolmux-build-"));
    folder = join(place, "another/and/deeper");
    const own = [
      "package.json",
      "tsconfig.json",
      "toolmux.schema.json",
      "scripts",
      "src",
      "plugins",
    ];
    const packages = importedPackages().map((name) => `node_modules/${name}`);
    for (const file of [...own, ...packages])
      cpSync(join(ROOT, file), join(folder, file), { recursive: true, filter: isRead });
    // What the minifier has made of the same script before: it takes longer than all else, and knows of no folder.
    const made = join(ROOT, "dist/dashboard");
    const filter = (path: string): boolean => path === made || basename(path).startsWith("short-");
    if (existsSync(made)) cpSync(made, join(folder, "dist/dashboard"), { recursive: true, filter });
    return folder;
  }

  after(() => {
    if (place !== "") rmSync(place, { recursive: true, force: true });
  });

  it(
    "makes the bytes of dist/toolmux in another folder, and lists the checksums of all executables in order of names",
    LIMIT,
    () => {
      const dist = join(clone(), "dist");
      mkdirSync(dist, { recursive: true });
      for (const name of ["toolmux-linux-x64", "toolmux-darwin-arm64", "toolmux.map", "else"])
        writeFileSync(join(dist, name), `${name} as built before`);
      writeFileSync(join(dist, "SHA256SUMS"), `${"0".repeat(64)}  toolmux-linux-arm64\n`);
      assert.equal(build(clone()).stderr, "");
      assert.equal(hash(join(dist, "toolmux")), hash(join(ROOT, "dist/toolmux")));
      const sums = ["toolmux", "toolmux-darwin-arm64", "toolmux-linux-x64"]
        .map((name) => `${hash(join(dist, name))}  ${name}\n`)
        .join("");
      assert.equal(readFileSync(join(dist, "SHA256SUMS"), "utf8"), sums);
    },
  );

  it("changes nothing, and says why, if one of its targets cannot be had", LIMIT, () => {
    // How long it takes to build is of no interest here.
    writeFileSync(join(clone(), "src/main.ts"), "");
    const dist = join(clone(), "dist");
    const outputs = [`toolmux-${OWN}`, "node/toolmux.js", "SHA256SUMS"];
    mkdirSync(join(dist, "node"), { recursive: true });
    for (const output of outputs) writeFileSync(join(dist, output), "as built before");
    const list = (): string[] => readdirSync(dist).filter((name) => name !== "dashboard");
    const files = list();
    // Nothing of bun's is cached in an empty folder, and nothing listens at that port.
    const cache = { BUN_INSTALL_CACHE_DIR: join(place, "cache") };
    const unreachable = { ...cache, HTTPS_PROXY: "http://127.0.0.1:1" };
    const targets = [`--target=${OWN}`, "--target=linux-x64-musl", "--target=node"];
    const { status, stdout, stderr } = build(clone(), targets, unreachable);
    assert.deepEqual([status, stdout], [1, ""]);
    const why = /^build: linux-x64-musl cannot be built; dist stays as it was\.\n.*download/i;
    assert.match(stderr, why);
    assert.deepEqual(list(), files);
    for (const output of outputs)
      assert.equal(readFileSync(join(dist, output), "utf8"), "as built before");
  });

  it("names all targets when it is asked for one that there is not", LIMIT, () => {
    const { status, stderr } = build(clone(), ["--target=linux-x64", "--target=plan9"]);
    const all = "all, darwin-arm64, darwin-x64, linux-arm64, linux-x64, linux-x64-musl, node";
    assert.deepEqual([status, stderr], [1, `build: no target "plan9"; there are ${all}\n`]);
  });
});

/** The packages that the code imports, and those that they depend on: to copy all takes longer than to build. */
function importedPackages(): readonly string[] {
  const imported = ["scripts", "src", "plugins"]
    .map((at) => join(ROOT, at))
    .flatMap((at) =>
      readdirSync(at, { encoding: "utf8", recursive: true }).map((file) => join(at, file)),
    )
    .filter((file) => /\.(?:tsx?|css)$/.test(file))
    .flatMap((file) =>
      [...readFileSync(file, "utf8").matchAll(IMPORT)].map(([, name = ""]) => name),
    );
  const found = new Set(imported.filter(isInstalled));
  for (const name of found) {
    const manifest = readFileSync(join(PACKAGES, name, "package.json"), "utf8");
    const { dependencies, peerDependencies } = JSON.parse(manifest) as Record<string, object>;
    const others = Object.keys({ ...dependencies, ...peerDependencies });
    for (const other of others.filter(isInstalled)) found.add(other);
  }
  return [...found];
}

const isInstalled = (name: string): boolean => existsSync(join(PACKAGES, name, "package.json"));

/** Whether a build can want it: folders, code and JSON, which is a third of what packages hold. */
function isRead(path: string): boolean {
  return (
    statSync(path).isDirectory() ||
    /(?:(?<!\.d)\.(?:[cm]?js|tsx?|json|css|html)|\/LICENSE)$/.test(path)
  );
}

/** Runs the build in a clone, without what the surroundings say of proxies and caches. */
function build(folder: string, args: readonly string[] = [], env: Record<string, string> = {}) {
  const { PATH = "", HOME = "" } = process.env;
  const options = { cwd: folder, env: { PATH, HOME, ...env }, encoding: "utf8" } as const;
  return spawnSync(process.execPath, ["scripts/build.ts", ...args], options);
}

function hash(file: string): string {
  return createHash("sha256").update(readFileSync(file)).digest("hex");
}

/** The arguments of `bun build` for executables: toolmux, and the programs that it is compared with. */
export const FLAGS: readonly string[] = [
  "--compile",
  "--minify",
  // Bytecode halves the start-up time; with top-level await it needs ESM.
  "--bytecode",
  "--format=esm",
  // Code that only some commands need is not loaded when other commands start.
  "--splitting",
  "--sourcemap",
  // Do not load .env and bunfig.toml from the user's current folder, which is not trusted.
  "--no-compile-autoload-dotenv",
  "--no-compile-autoload-bunfig",
  // Plugins resolve packages from their own node_modules.
  "--compile-autoload-package-json",
];

/**
 * Only code that runs ten times as often as usual is compiled by the JIT compiler, until `compileAsUsual` is called:
 * most code runs only at the start, and compiling it takes a sixth of the processor time of a start.
 */
const START_FLAG = "--compile-jit-policy=10";

/**
 * The arguments of `bun build` for the bundle for Node. It is not minified: minified code would not start faster, and
 * its stack traces would be hard to read.
 */
const NODE_FLAGS: readonly string[] = [
  "--target=node",
  "--format=esm",
  // `serve` does not load code that only other commands need.
  "--splitting",
  "--entry-naming=toolmux.[ext]",
  "--chunk-naming=chunks/[name]-[hash].[ext]",
  // The `main` of jsonc-parser is UMD, whose inner `require` no bundler sees.
  "--main-fields=module",
  "--main-fields=main",
];

/** The arguments of `bun build` that give another version than that of package.json. */
export function versionFlags(version: string): readonly string[] {
  return ["--define", `TOOLMUX_VERSION=${JSON.stringify(version)}`];
}

/** Something that can be built. */
export interface Target {
  /** The name for `--target`. */
  readonly name: string;
  /** The name of the built file or folder in dist. */
  readonly output: string;
  /** The arguments of `bun build` that make the output in a folder. */
  readonly args: (folder: string) => readonly string[];
  /** A remark for the person who built it. */
  readonly remark?: string;
}

/**
 * The executable for the machine that runs the build. Building it needs no download, unlike executables for other
 * platforms.
 */
export const HOST: Target = executable("this machine", "toolmux", []);

/** Executables for specific platforms, in the order of their names. */
const PLATFORMS: readonly Target[] = [
  platform("darwin-arm64"),
  {
    ...platform("darwin-x64"),
    // Bun signs the executables that it compiles for arm64. In this one it leaves the signature of its own
    // executable, which is then invalid.
    remark: "to be signed on a Mac before it runs: codesign --force --sign - FILE",
  },
  platform("linux-arm64"),
  platform("linux-x64"),
  platform("linux-x64-musl"),
];

/** One program for Node with no packages beside it: dist/node/toolmux.js, and the chunks that it loads. */
export const NODE: Target = {
  name: "node",
  output: "node",
  args: (folder) => [...NODE_FLAGS, "src/main.ts", "--outdir", `${folder}/node`],
};

/** Everything that `--target` can name. */
export const TARGETS: readonly Target[] = [...PLATFORMS, NODE];

/** The targets that are a single file, in the order of their outputs. */
export const EXECUTABLES: readonly Target[] = [HOST, ...PLATFORMS];

/** bun's name for a platform is `bun-` followed by our name for it. */
function platform(name: string): Target {
  return executable(name, `toolmux-${name}`, [`--target=bun-${name}`]);
}

function executable(name: string, output: string, more: readonly string[]): Target {
  return {
    name,
    output,
    args: (folder) => [
      ...FLAGS,
      START_FLAG,
      ...more,
      "src/main.ts",
      "--outfile",
      `${folder}/${output}`,
    ],
  };
}

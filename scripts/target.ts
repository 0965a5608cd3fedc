/** How an executable is compiled: toolmux, and those that it is compared with. */
export const FLAGS: readonly string[] = [
  "--compile",
  "--minify",
  // Bytecode halves the start-up time; with top-level await it needs ESM.
  "--bytecode",
  "--format=esm",
  // What only some commands need is not loaded at the start of the others.
  "--splitting",
  "--sourcemap",
  // Nothing in the folder that a user happens to stand in is trusted.
  "--no-compile-autoload-dotenv",
  "--no-compile-autoload-bunfig",
  // Plugins resolve packages from their own node_modules.
  "--compile-autoload-package-json",
];

/** Not minified: it starts as fast, and what a stack trace names can be found. */
const NODE_FLAGS: readonly string[] = [
  "--target=node",
  "--format=esm",
  // `serve` does not load what only other commands need.
  "--splitting",
  "--entry-naming=toolmux.[ext]",
  "--chunk-naming=chunks/[name]-[hash].[ext]",
  // The `main` of jsonc-parser is UMD, whose inner `require` no bundler sees.
  "--main-fields=module",
  "--main-fields=main",
];

/** Something that can be built. */
export interface Target {
  /** What `--target` calls it. */
  readonly name: string;
  /** The file or folder that it becomes in dist. */
  readonly output: string;
  /** The arguments of `bun build` that make the output in a folder. */
  readonly args: (folder: string) => readonly string[];
  /** What whoever built it has to know. */
  readonly remark?: string;
}

/** The executable for the machine that builds; it needs nothing but the bun that builds. */
export const HOST: Target = executable("this machine", "toolmux", []);

/** Executables for others, in the order of their names. */
const PLATFORMS: readonly Target[] = [
  platform("darwin-arm64"),
  {
    ...platform("darwin-x64"),
    // Bun signs what it compiles for arm64; here it leaves the signature of its own executable, which is wrong now.
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

/** Those that are one file, in the order of their outputs. */
export const EXECUTABLES: readonly Target[] = [HOST, ...PLATFORMS];

/** bun's own name of a platform is ours after `bun-`. */
function platform(name: string): Target {
  return executable(name, `toolmux-${name}`, [`--target=bun-${name}`]);
}

function executable(name: string, output: string, more: readonly string[]): Target {
  return {
    name,
    output,
    args: (folder) => [...FLAGS, ...more, "src/main.ts", "--outfile", `${folder}/${output}`],
  };
}

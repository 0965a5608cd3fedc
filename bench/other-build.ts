import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** Time limit of building a commit, in ms: it installs the packages of that commit. */
const LIMIT = 10 * 60_000;

/**
 * The path of another build to compare with. A commit is built once, in a worktree outside of the repository, and kept
 * in the cache folder of the user.
 * @param other the path of an executable, or a commit
 * @throws if it is neither, or if the commit cannot be built
 */
export function otherBuild(other: string): string {
  if (existsSync(other)) return resolve(other);
  const commit = git("rev-parse", "--verify", "--quiet", `${other}^{commit}`).trim();
  const folder = join(process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "toolmux-bench");
  const kept = join(folder, `toolmux-${commit}`);
  if (existsSync(kept)) return kept;
  const worktree = mkdtempSync(join(tmpdir(), "toolmux-build-"));
  try {
    console.log(`building ${commit.slice(0, 12)}`);
    git("worktree", "add", "--detach", "--force", worktree, commit);
    execFileSync("npm", ["run", "--silent", "build"], {
      cwd: worktree,
      stdio: ["ignore", "ignore", "inherit"],
      timeout: LIMIT,
    });
    mkdirSync(folder, { recursive: true });
    copyFileSync(join(worktree, "dist", "toolmux"), kept);
  } finally {
    rmSync(worktree, { recursive: true, force: true });
    git("worktree", "prune");
  }
  return kept;
}

function git(...args: readonly string[]): string {
  try {
    return execFileSync("git", args, {
      cwd: ROOT,
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
    });
  } catch (error) {
    const [command = ""] = args;
    throw new Error(
      command === "rev-parse"
        ? `there is no executable and no commit "${args.at(-1)?.replace("^{commit}", "")}"`
        : `git ${command} failed: ${(error as { stderr?: string }).stderr?.trim() ?? ""}`,
      { cause: error },
    );
  }
}

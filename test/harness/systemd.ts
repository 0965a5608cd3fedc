import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { missingPrograms, skipWithout } from "./requirements.ts";
import { waitFor } from "./wait.ts";

const SYSTEMD = "/lib/systemd/systemd";
/** The hierarchies of control groups: one, or those of each controller. */
const HIERARCHIES = hierarchiesIn("/sys/fs/cgroup");
const GROUPS = HIERARCHIES.map((folder) => join(folder, `toolmux-test-${process.pid}`));
const NAMESPACES = ["--mount", "--pid", "--fork", "--mount-proc"];

/** The `skip` option of tests that need systemd. */
export const SKIP_WITHOUT_SYSTEMD = skipWithout({
  isMet:
    existsSync(SYSTEMD) &&
    missingPrograms(["systemctl", "unshare", "nsenter"]).length === 0 &&
    spawnSync("unshare", [...NAMESPACES, "true"]).status === 0 &&
    makesGroups(),
  tests: "the service under a systemd of the user",
  remedy: "this needs Linux with systemd, and the rights to make namespaces and control groups",
});

function hierarchiesIn(folder: string): readonly string[] {
  if (existsSync(join(folder, "cgroup.procs"))) return [folder];
  if (!existsSync(folder)) return [];
  const entries = readdirSync(folder, { withFileTypes: true });
  return entries.flatMap((entry) =>
    entry.isDirectory() ? hierarchiesIn(join(folder, entry.name)).slice(0, 1) : [],
  );
}

function makesGroups(): boolean {
  try {
    for (const group of GROUPS) mkdirSync(group);
    for (const group of GROUPS) rmdirSync(group);
    return GROUPS.length > 0;
  } catch {
    return false;
  }
}

/**
 * Runs `run` beside a systemd of the user, in namespaces and control groups of its own: no other systemd is needed, and
 * nothing is left.
 * @param run gets the words before a command that runs it inside
 */
export async function withUserSystemd(
  env: Readonly<Record<string, string>>,
  run: (inside: readonly string[]) => Promise<void>,
): Promise<void> {
  // systemd makes its groups below those of its own process. Not every controller takes a process at once.
  const script = `
    for group in ${GROUPS.join(" ")}; do mkdir $group || exit 1; echo $$ > $group/cgroup.procs; done 2>/dev/null
    mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system || exit 1
    ${SYSTEMD} --user --log-target=console & wait`;
  const outer = spawn("unshare", [...NAMESPACES, "sh", "-c", script], {
    env,
    stdio: ["ignore", "ignore", "pipe"],
  });
  let log = "";
  outer.stderr.setEncoding("utf8").on("data", (text: string) => (log += text));
  const ended = once(outer, "close");
  try {
    const first = await waitFor("the first process inside", () => {
      const children = readFileSync(`/proc/${outer.pid}/task/${outer.pid}/children`, "utf8");
      return children.trim() || undefined;
    });
    const inside = ["nsenter", "--target", first, "--mount", "--pid", "--"];
    await waitFor("systemd", () => {
      if (outer.exitCode !== null) throw new Error(`systemd has not started: ${log}`);
      const [program, ...args] = [...inside, "systemctl", "--user", "is-system-running"];
      const { stdout } = spawnSync(program, args, { env, encoding: "utf8" });
      return /running|degraded/.test(stdout) ? true : undefined;
    });
    await run(inside);
  } finally {
    // With the first process of a namespace all others end.
    const children = readFileSync(`/proc/${outer.pid}/task/${outer.pid}/children`, "utf8");
    if (children.trim() !== "") process.kill(Number(children), "SIGKILL");
    await ended;
    await waitFor("the end of the control groups", () => GROUPS.every(removeGroups) || undefined);
  }
}

/** Removes a control group with those in it. @returns whether it is gone; not before its processes are */
function removeGroups(folder: string): boolean {
  if (!existsSync(folder)) return true;
  for (const entry of readdirSync(folder, { withFileTypes: true }))
    if (entry.isDirectory() && !removeGroups(join(folder, entry.name))) return false;
  try {
    rmdirSync(folder);
    return true;
  } catch {
    return false;
  }
}

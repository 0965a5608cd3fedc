import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { missingPrograms, skipWithout } from "./requirements.ts";
import { waitFor } from "./wait.ts";

const SYSTEMD = "/lib/systemd/systemd";
/** Where the processes of systemd are grouped. */
const GROUPS = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup"].find((folder) => existsSync(folder));
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

function makesGroups(): boolean {
  if (GROUPS === undefined) return false;
  const folder = join(GROUPS, `toolmux-test-${process.pid}`);
  try {
    mkdirSync(folder);
    rmdirSync(folder);
    return true;
  } catch {
    return false;
  }
}

/**
 * Runs `run` beside a systemd of the user, in namespaces and a control group of its own: no other systemd is needed, and
 * nothing is left.
 * @param run gets the words before a command that runs it inside
 */
export async function withUserSystemd(
  env: Readonly<Record<string, string>>,
  run: (inside: readonly string[]) => Promise<void>,
): Promise<void> {
  const group = join(GROUPS ?? "", `toolmux-test-${process.pid}`);
  const script = `
    mkdir ${group} && echo $$ > ${group}/cgroup.procs || exit 1
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
    await waitFor("the end of the control group", () => removeGroups(group) || undefined);
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

import assert from "node:assert/strict";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { describe } from "node:test";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { run, runCommand, runJson } from "../harness/command.ts";
import { executable, EXIT_LIMIT, it, type TestFolder, withTestFolder } from "../harness/hub.ts";
import { RawClient } from "../harness/raw-client.ts";
import { waitUntil } from "../harness/wait.ts";

const TURNS = `
[[turns]]
when = "delegate"
toolCalls = [{ name = "transfer_task", arguments = { agent = "helper", task = "say hello" } }]
[[turns]]
after = "transfer_task"
text = "Done."
[[turns]]
when = "hang"
text = "I begin"
hang = true
[[turns]]
text = "You said: {message}"
`;

const MANIFEST = `
[models.main]
provider = "script"
script = "turns.toml"
[agents.worker]
model = "main"
instruction = "x"
persist = true
subAgents = ["helper"]
[agents.helper]
model = "main"
instruction = "x"
[agents.secretive]
model = "main"
instruction = "x"
persist = false
[[clients]]
name = "one"
token = "\${env:TOKEN_ONE}"
[[clients]]
name = "two"
token = "\${env:TOKEN_TWO}"
[[plugins]]
use = "agents"
options = { offer = "all" }
`;
const TOKENS = { TOKEN_ONE: "token-of-client-one", TOKEN_TWO: "token-of-client-two" };

function inFolder(use: (folder: TestFolder) => Promise<void>): Promise<void> {
  return withTestFolder(MANIFEST, (folder) => {
    writeFileSync(join(folder.dir, "turns.toml"), TURNS);
    return use({ ...folder, env: { ...folder.env, ...TOKENS } });
  });
}

function conversationsIn({ dir }: TestFolder): string {
  return join(dir, "state", "toolmux", "conversations");
}

interface Listed {
  readonly conversations: readonly { readonly id: string; readonly title: string }[];
}

/** A chat whose lines come from a pipe. */
function chat({ dir, env, config }: TestFolder, args: readonly string[], input: string) {
  return runCommand({ dir, env }, ["chat", ...args, "--config", config], { input });
}

describe("conversations of the terminal", () => {
  it("are kept for the user alone, go on, show teams as trees, and are forgotten", () =>
    inFolder(async (folder) => {
      const secret = await runCommand(folder, ["secret", "set", "mine"], {
        input: "my-s3cret-value",
      });
      assert.equal(secret.code, 0, secret.stderr);
      const first = await chat(folder, ["worker"], "my-s3cret-value\ndelegate\n");
      assert.equal(first.code, 0, first.stderr);
      assert.match(first.stderr, /┌ helper: say hello\n(?:.*\n)*? {2}└ helper {2}/);
      const user = join(conversationsIn(folder), "user");
      const [file = ""] = readdirSync(user);
      const path = join(user, file);
      assert.equal(statSync(path).mode & 0o777, 0o600);
      assert.doesNotMatch(readFileSync(path, "utf8"), /my-s3cret-value/);
      const { conversations } = await runJson<Listed>(folder, "chat", "list");
      const [{ id, title } = { id: "", title: "" }] = conversations;
      assert.deepEqual([file, title], [`${id}.jsonl`, "[redacted]"]);
      // A killed process has written half a line.
      writeFileSync(path, `${readFileSync(path, "utf8")}{"role":"user","at":1,"te`);
      const second = await chat(
        folder,
        ["--resume", id.slice(0, 6)],
        "more\n/history\n/save out.json\n",
      );
      assert.equal(second.code, 0, second.stderr);
      assert.match(second.stderr, /goes on with "\[redacted\]": 6 messages/);
      assert.match(second.stdout, /\n> {3}┌ helper: say hello\n> {3}│ You said: say hello\n/);
      const saved = JSON.parse(readFileSync(join(folder.dir, "out.json"), "utf8")) as {
        readonly messages: readonly unknown[];
      };
      assert.equal(saved.messages.length, 8);
      const last = await chat(folder, ["--resume"], "/clear\n/history\n");
      assert.match(last.stdout, /There are no messages\./);
      const forgotten = await run(folder, "chat", "forget", id);
      assert.equal(forgotten.code, 0, forgotten.stderr);
      assert.deepEqual(readdirSync(user), []);
      const gone = await run(folder, "chat", "--resume", id);
      assert.equal(gone.code, 2);
    }));

  it("go on where they cannot be kept, with one warning, and are not kept if the agent says so", () =>
    inFolder(async (folder) => {
      const path = conversationsIn(folder);
      const unkept = await chat(folder, ["secretive"], "hello\n");
      assert.equal(unkept.code, 0);
      assert.ok(!existsSync(path));
      // A file at the place of the folder stands for a disk that takes nothing.
      mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
      writeFileSync(path, "");
      const { code, stdout, stderr } = await chat(folder, ["worker"], "one\ntwo\n");
      assert.deepEqual([code, stdout], [0, "You said: one\nYou said: two\n"]);
      assert.equal(stderr.match(/cannot be kept/g)?.length, 1, stderr);
      rmSync(path);
    }));
});

describe("conversations of clients over HTTP", () => {
  it("outlive kill -9 of the hub for the same token, and are hidden from another one", () =>
    inFolder(async (folder) => {
      const serve = async () => {
        const serving = ["serve", "--http", "127.0.0.1:0", "--config", folder.config];
        const hub = new RawClient(executable(), serving, folder.dir, folder.env);
        const url = await hub.until(20_000, "the address", () => /http:\S+/.exec(hub.stderr)?.[0]);
        const connect = async (token: string) => {
          const client = new Client({ name: "c", version: "1" });
          const headers = { Authorization: `Bearer ${token}` };
          const requestInit = { headers };
          await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
          const call = async (tool: string, args: Record<string, unknown>) => {
            const result = await client.callTool({ name: `agents__${tool}`, arguments: args });
            return (result.structuredContent ?? result) as Readonly<Record<string, unknown>>;
          };
          return { client, call };
        };
        return { hub, connect };
      };
      const before = await serve();
      const one = await before.connect(TOKENS.TOKEN_ONE);
      const opened = await one.call("create_agent_session", { agent: "worker", session_name: "s" });
      const { agent_session_id } = opened;
      assert.equal(opened["kept"], true);
      await one.call("send_message", { agent_session_id, message: "first" });
      void one.call("send_message", { agent_session_id, message: "hang" }).catch(() => {});
      const [principal = ""] = readdirSync(conversationsIn(folder));
      const path = join(conversationsIn(folder), principal, `${String(agent_session_id)}.jsonl`);
      await waitUntil("the message in the file", () =>
        Promise.resolve(readFileSync(path, "utf8").includes('"hang"') || undefined),
      );
      before.hub.signal("SIGKILL");
      await before.hub.waitForExit(EXIT_LIMIT);
      await one.client.close().catch(() => {});
      const after = await serve();
      const other = await after.connect(TOKENS.TOKEN_TWO);
      const refused = await other.call("get_agent_session_history", { agent_session_id });
      assert.match(JSON.stringify(refused), /Agent session not found\./);
      const again = await after.connect(TOKENS.TOKEN_ONE);
      const answer = await again.call("send_message", { agent_session_id, message: "second" });
      assert.equal(answer["response"], "You said: second");
      const history = await again.call("get_agent_session_history", { agent_session_id });
      const messages = history["messages"] as readonly { readonly content: string }[];
      assert.deepEqual(
        messages.map(({ content }) => content),
        ["first", "You said: first", "hang", "second", "You said: second"],
      );
      await Promise.all([other, again].map(({ client }) => client.close()));
      after.hub.signal("SIGTERM");
      await after.hub.waitForExit(EXIT_LIMIT);
    }));
});

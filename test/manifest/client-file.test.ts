import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { LIMIT_DEFAULTS, presentationOf } from "../../src/manifest/manifest.ts";
import { resolveRemote, resolveServer } from "../../src/manifest/resolve.ts";
import {
  findProblems,
  getRemote,
  getServer,
  loadText,
  plainCopy,
} from "../fixtures/manifest/manifest-folder.ts";
import type { Manifest } from "../../src/manifest/manifest.ts";
import { itIn, writeFiles } from "../harness/in-folder.ts";

const CLAUDE_DESKTOP = `{
  "globalShortcut": "",
  "preferences": {"menuBarEnabled": true},
  "mcpServers": {
    "filesystem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/Users/me/Desktop"]},
    "brave-search": {"command": "npx", "args": ["-y", "server-brave-search"], "env": {"BRAVE_API_KEY": "YOUR_API_KEY_HERE"}}
  }
}`;

const CLAUDE_CODE = `{
  "mcpServers": {
    "database": {
      "type": "stdio",
      "command": "\${TOOLS:-/opt/tools}/db",
      "args": ["--dsn", "\${DSN}"],
      "env": {"CACHE": "\${CACHE_DIR:-/tmp}"}
    },
    "sentry": {"type": "http", "url": "https://mcp.example.com/mcp"},
    "events": {"type": "sse", "url": "https://mcp.example.com/sse", "headers": {"Authorization": "Bearer \${T}"}}
  }
}`;

const CURSOR = `{
  "mcpServers": {
    "local": {
      "command": "python",
      "args": ["\${workspaceFolder}/server.py", "--home", "\${userHome}"],
      "env": {"API_KEY": "\${env:MY_KEY}"},
      "envFile": "\${workspaceFolder}/.env"
    },
    "remote": {"url": "http://localhost:3000/mcp", "headers": {"API_KEY": "value"}}
  }
}`;

const VS_CODE = `{
  // asked for once
  "inputs": [{"type": "promptString", "id": "perplexity-key", "description": "API key", "password": true}],
  "servers": {
    "github": {"type": "http", "url": "https://api.example.com/mcp/"},
    "Perplexity": {
      "type": "stdio", "command": "npx", "args": ["-y", "server-perplexity-ask"],
      "env": {"PERPLEXITY_API_KEY": "\${input:perplexity-key}", "PORT": 8080, "DEBUG": null},
      "dev": {"watch": "build/**/*.js"}
    },
    "fetch": {"type": "stdio", "command": "uvx", "args": ["mcp-server-fetch", "\${workspaceFolder}\${/}x"],},
  }
}`;

const WINDSURF = `{
  "mcpServers": {
    "figma": {"serverUrl": "https://example.com/sse"},
    "git hub": {
      "command": "npx", "args": ["-y", "server-github"], "env": {"TOKEN": "t"},
      "disabled": true, "disabledTools": ["delete_repo"], "alwaysAllow": [], "autoApprove": ["search"],
      "timeout": 60, "description": "GitHub"
    }
  }
}`;

/** Loads a client's file with these servers, as JSON, and with what else is in it. */
const loadServers = (servers: string, more = "") =>
  loadText(`{${more}"mcpServers": {${servers}}}`, "a.json");

/** Its servers in one line each: `name kind`, and `off` if it is. */
function kindsIn({ servers }: Manifest): string[] {
  return servers.map(({ name, kind, enabled }) => `${name} ${kind}${enabled ? "" : " off"}`);
}

describe("a client's file", () => {
  itIn("of Claude Desktop is taken as it is", async (folder) => {
    const file = await folder.write("claude_desktop_config.json", CLAUDE_DESKTOP);
    const { manifest, notes } = await folder.loadValid({ files: [file] });
    assert.deepEqual(notes, []);
    const named = manifest.servers.map(({ name, prefix, enabled }) => [name, prefix, enabled]);
    const wanted = ["filesystem", "brave-search"].map((name) => [name, name, true]);
    assert.deepEqual(named, wanted);
    const server = getServer(manifest, "brave-search");
    assert.deepEqual(plainCopy(server.env), { BRAVE_API_KEY: "YOUR_API_KEY_HERE" });
    assert.deepEqual([server.syntax, server.baseDir], ["client", folder.root]);
    const { secrets } = await resolveServer(server, { HOME: folder.home }, folder.cwd);
    assert.deepEqual(secrets, ["YOUR_API_KEY_HERE"]);
  });

  itIn("of Claude Code is taken with its variables and its remote servers", async (folder) => {
    const file = await folder.write(".mcp.json", CLAUDE_CODE);
    const { manifest, notes } = await folder.loadValid({ files: [file] });
    assert.deepEqual(notes, []);
    const { url, transport, auth, syntax } = getRemote(manifest, "sentry");
    const usual = { transport: "auto", auth: "auto", syntax: "client" };
    assert.deepEqual(
      { url, transport, auth, syntax },
      { url: "https://mcp.example.com/mcp", ...usual },
    );
    const events = getRemote(manifest, "events");
    assert.equal(events.transport, "sse");
    const { headers } = await resolveRemote(events, { T: "token-value" }, folder.cwd);
    assert.deepEqual(plainCopy(headers), { Authorization: "Bearer token-value" });
    const dsn = "postgres://u:p@h/d";
    const env = { DSN: dsn, CACHE_DIR: "" };
    const resolved = await resolveServer(getServer(manifest, "database"), env, folder.cwd);
    assert.deepEqual(plainCopy(resolved), {
      command: "/opt/tools/db",
      args: ["--dsn", dsn],
      cwd: folder.root,
      env: { CACHE: "/tmp" },
      secrets: [dsn],
    });
  });

  itIn("of Cursor is taken as it is, with the folders that it fills in", async (folder) => {
    const file = await folder.write(".cursor/mcp.json", CURSOR);
    const { manifest, notes } = await folder.loadValid({ files: [file] });
    assert.deepEqual(plainCopy(getRemote(manifest, "remote").headers), { API_KEY: "value" });
    const known = ".cursor/mcp.json: toolmux does not know these keys and ignores them: envFile";
    assert.deepEqual(notes, [known]);
    const env = { HOME: folder.home, MY_KEY: "my-key" };
    const resolved = await resolveServer(getServer(manifest, "local"), env, folder.cwd);
    assert.deepEqual(resolved.args, [`${folder.root}/server.py`, "--home", folder.home]);
    assert.deepEqual(plainCopy(resolved.env), { API_KEY: "my-key" });
  });

  itIn(
    "of VS Code is taken; what only the editor can ask for fails with a remedy",
    async (folder) => {
      const file = await folder.write(".vscode/mcp.json", VS_CODE);
      const { manifest, notes } = await folder.loadValid({ files: [file] });
      assert.equal(getRemote(manifest, "github").url, "https://api.example.com/mcp/");
      const known = ".vscode/mcp.json: toolmux does not know these keys and ignores them: dev";
      assert.deepEqual(notes, [known]);
      const fetch = await resolveServer(getServer(manifest, "fetch"), {}, folder.cwd);
      assert.deepEqual(fetch.args, ["mcp-server-fetch", `${folder.root}/x`]);
      const perplexity = getServer(manifest, "Perplexity");
      assert.deepEqual(Object.keys(perplexity.env), ["PERPLEXITY_API_KEY", "PORT"]);
      assert.equal(perplexity.env["PORT"], "8080");
      await assert.rejects(resolveServer(perplexity, {}, folder.cwd), {
        code: "notSupported",
        server: "Perplexity",
        step: "resolve",
        message: `server "Perplexity" cannot be started: env.PERPLEXITY_API_KEY contains \${input:…}, which only editors support; set an environment variable and write \${env:NAME}`,
      });
    },
  );

  it("of Windsurf is taken as it is: disabled servers and tools stay so, and the prefix is made valid", async () => {
    const { manifest, notes } = await loadText(WINDSURF, "mcp_config.json");
    assert.equal(getRemote(manifest, "figma").url, "https://example.com/sse");
    assert.deepEqual(notes, [
      "mcp_config.json: toolmux does not know these keys and ignores them: timeout, autoApprove",
      `mcp_config.json: server "git hub" gets the prefix "git_hub"`,
    ]);
    const { enabled, prefix, tools } = getServer(manifest, "git hub");
    assert.deepEqual([enabled, prefix, tools.deny], [false, "git_hub", ["delete_repo"]]);
  });

  it("may choose its tools by lists", async () => {
    const { manifest } = await loadServers(
      `"copilot": {"type": "local", "command": "x", "tools": ["get_issue"]},
       "gemini": {"command": "x", "includeTools": ["a"], "excludeTools": ["b"], "trust": true}`,
    );
    assert.deepEqual(getServer(manifest, "copilot").tools.allow, ["get_issue"]);
    const { allow, deny } = getServer(manifest, "gemini").tools;
    assert.deepEqual([allow, deny], [["a"], ["b"]]);
  });

  it("may say what its servers are called and what they are for", async () => {
    const { manifest } = await loadText(
      JSON.stringify({
        mcpServers: {
          a: { command: "x", name: "Linear", description: "Issues." },
          b: { command: "x", name: "b", title: "Boards" },
          c: { command: "x", name: "c", description: 7 },
        },
      }),
      "a.json",
    );
    const shown = manifest.servers.map((spec) => presentationOf(spec));
    assert.deepEqual(shown, [{ title: "Linear", description: "Issues." }, { title: "Boards" }, {}]);
  });

  it("may use our own keys, for servers and for the hub", async () => {
    const { manifest } = await loadServers(
      `"a": {"command": "x", "prefix": "p", "tools": {"deny": ["d"]}, "connectTimeout": 7}`,
      `"hub": {"separator": "-"}, "defaults": {"callTimeout": "5s"}, `,
    );
    const { prefix, tools, connectTimeout, callTimeout } = getServer(manifest, "a");
    assert.equal(manifest.hub.separator, "-");
    assert.deepEqual([prefix, tools.deny, connectTimeout, callTimeout], ["p", ["d"], 7, 5000]);
  });

  it("may say how its servers live", async () => {
    const { manifest, notes } = await loadServers(
      `"a": {"command": "x", "isolation": "perClient", "lazy": true, "healthInterval": 0,
        "idleStop": "10m", "reconnect": {"policy": "immediate"}}`,
      `"defaults": {"reconnect": {"maxAttempts": 9}}, `,
    );
    const { isolation, lazy, healthInterval, idleStop, reconnect } = getServer(manifest, "a");
    assert.deepEqual(notes, []);
    assert.deepEqual([isolation, lazy, healthInterval, idleStop], ["perClient", true, 0, 600_000]);
    assert.deepEqual([reconnect.policy, reconnect.maxAttempts], ["immediate", 9]);
  });

  it("keeps a server whose limits make no sense, with the usual ones, and says so", async () => {
    const { manifest, notes } = await loadServers(
      `"a": {"command": "x", "connectTimeout": "soon", "idleStop": "5s",
          "reconnect": {"enabled": true, "base": "x", "max": "2m"}, "healthInterval": {"seconds": 3}},
        "b": {"command": "x", "reconnect": true}, "off": {"command": "x", "reconnect": true, "disabled": true}`,
      `"defaults": {"connectTimeout": "5s"}, `,
    );
    const { connectTimeout, healthInterval, idleStop, reconnect } = getServer(manifest, "a");
    assert.deepEqual([connectTimeout, healthInterval, idleStop], [5000, 30_000, 5000]);
    for (const found of [reconnect, getServer(manifest, "b").reconnect])
      assert.deepEqual(found, LIMIT_DEFAULTS.reconnect);
    const duration = `expected a duration such as "30s", "500ms" or "5m", or a number of milliseconds`;
    assert.deepEqual(notes, [
      `a.json:1:77: server "a": connectTimeout is ignored: ${duration}, found "soon"`,
      `a.json:2:11: server "a": reconnect is ignored: enabled unknown key; the known keys are policy, base, max, jitter, maxAttempts; base ${duration}, found "x"`,
      `a.json:2:69: server "a": healthInterval is ignored: ${duration}, found a table`,
      `a.json:3:31: server "b": reconnect is ignored: expected a table, found a boolean`,
    ]);
  });

  it("loses a server that could be shared, started or shown otherwise than its owner wants", async () => {
    const { manifest } = await loadServers(
      `"a": {"command": "x", "isolation": "per-client"}, "b": {"command": "x", "lazy": "no"},
       "c": {"command": "x", "tools": {"deny": "x"}}`,
    );
    assert.deepEqual(kindsIn(manifest), ["a unsupported", "b unsupported", "c unsupported"]);
  });

  it("loses only the server whose limits contradict each other", async () => {
    const { manifest, notes } = await loadServers(
      `"a": {"command": "x", "callTimeout": "20m"}, "good": {"command": "x"},
       "b": {"command": "x", "reconnect": {"max": 1}}, "off": {"command": "x", "reconnect": {"max": 1}, "disabled": true}`,
    );
    const kinds = "a unsupported,good stdio,b unsupported,off unsupported off";
    assert.equal(kindsIn(manifest).join(), kinds);
    assert.deepEqual(notes, [
      `a.json: server "a" is ignored: callTimeout (20m) is longer than maxCallTimeout (15m); set maxCallTimeout to 20m or more`,
      `a.json: server "b" is ignored: reconnect.base (1s) is longer than reconnect.max (1ms); set reconnect.max to 1s or more`,
    ]);
  });

  it("loses only the entry that is broken, and says why without showing values", async () => {
    const { manifest, notes } = await loadServers(
      `"good": {"command": "x", "args": ["-p", 8080, true], "cwd": null},
       "none": {}, "text": "npx secret", "wrong": {"command": ["npx", "secret"], "env": {"A": ["secret"]}},
       "off": {"disabled": true, "type": "ws", "url": "u"}, "self": {"command": "/usr/local/bin/toolmux", "args": ["serve"]}`,
    );
    const bad = ["none", "text", "wrong"].map((name) => `${name} unsupported`);
    const rest = ["off unsupported off", "self unsupported"];
    assert.deepEqual(kindsIn(manifest), ["good stdio", ...bad, ...rest]);
    assert.deepEqual(getServer(manifest, "good").args, ["-p", "8080", "true"]);
    assert.deepEqual(notes, [
      `a.json:2:8: server "none" is ignored: it has neither a command nor a url`,
      `a.json:2:20: server "text" is ignored: its entry is not a table`,
      `a.json:2:90: server "wrong" is ignored: env.A expected a string, found an array`,
      `a.json:3:61: server "self" is ignored: it is toolmux itself`,
    ]);
  });

  it("may write a key twice, and the last one counts as for its client", async () => {
    const { manifest, notes } = await loadServers(
      `"a": {"command": "x"}, "a": {"command": "y"}`,
      `"x": {"y": 1, "y": 2}, `,
    );
    assert.equal(getServer(manifest, "a").command, "y");
    assert.deepEqual(notes, ["a.json: mcpServers.a is set twice; the last one counts"]);
  });

  it("called mcp.json may serve two clients at once", async () => {
    const { manifest } = await loadText(
      `{"servers": {"a": {"command": "1"}, "b": {"command": "1"}}, "mcpServers": {"b": {"command": "2"}}}`,
      "mcp.json",
    );
    const commands = manifest.servers.map(({ name }) => getServer(manifest, name).command);
    assert.deepEqual(commands, ["1", "2"]);
  });

  it("called mcp.json that holds no servers is no error but noted", async () => {
    const { notes } = await loadText("{}", "mcp.json");
    assert.deepEqual(notes, [
      "mcp.json: has neither mcpServers nor servers",
      "the manifest has no servers",
    ]);
  });

  itIn(
    "gives way with its prefixes to our own files and its own earlier servers",
    async (folder) => {
      const files = await writeFiles(
        folder,
        `{"mcpServers": {"fs": {"command": "x"}, "my fs": {"command": "x"}, "my.fs": {"command": "x"},
        "日本": {"command": "x"}, "__": {"command": "x"}, "a___b": {"command": "x"}, "off fs": {"command": "x", "disabled": true}}}`,
        `[servers.files]\ncommand = "x"\nprefix = "fs"`,
      );
      const { manifest } = await folder.loadValid({ files });
      const prefixes = manifest.servers.map(({ name, prefix }) => `${name}: ${prefix}`);
      const first = "fs: fs2, my fs: my_fs, my.fs: my_fs2, 日本: server, __: server2";
      assert.equal(prefixes.join(", "), `${first}, a___b: a_b, off fs: off_fs, files: fs`);
    },
  );

  for (const separator of ["_", "-", "__", "_-_", "s", "2", "e-e"]) {
    it(`gets valid prefixes that differ, whatever the separator: ${separator}`, async () => {
      const names = "a_b a-b a.b s sss server 2 22 __ -_- e-e é-e-e-é ".split(" ");
      const mcpServers = Object.fromEntries(names.map((name) => [name, { command: "x" }]));
      const text = JSON.stringify({ hub: { separator }, mcpServers });
      const { manifest } = await loadText(text, "a.json");
      const prefixes = manifest.servers.map(({ prefix }) => prefix);
      assert.equal(new Set(prefixes).size, names.length);
      for (const prefix of prefixes) {
        assert.match(prefix, /^[A-Za-z0-9_-]+$/);
        assert.ok(!prefix.includes(separator), `${prefix} includes ${separator}`);
        assert.ok(!separator.includes(prefix.charAt(0)), `${prefix} begins like ${separator}`);
        assert.ok(!separator.includes(prefix.slice(-1)), `${prefix} ends like ${separator}`);
      }
    });
  }
});

describe("a guard in a client's entry", () => {
  /** The settings of a server's entry with these keys. */
  async function guardsOf(more: object) {
    const { manifest } = await loadServers(`"a": ${JSON.stringify({ command: "x", ...more })}`);
    const { approval, tools } = getServer(manifest, "a");
    const ofTools = tools.approval && plainCopy(tools.approval);
    return { approval, allow: tools.allow, deny: tools.deny, tools: ofTools };
  }

  const GUARDS: readonly (readonly [more: object, expected: object])[] = [
    [{ approval: "always" }, { approval: "always" }],
    [{ Approval: "auto" }, { approval: "auto" }],
    [{ tools: ["a"] }, { allow: ["a"] }],
    [{ includeTools: "a, b" }, { allow: ["a", "b"] }],
    [{ enabled_tools: [] }, { allow: [] }],
    [{ allowedTools: ["*"] }, {}],
    [{ allowed_tools: ["a", "b"], enabledTools: ["b", "c"] }, { allow: ["b"] }],
    [
      { "disabled-tools": ["a"], excludeTools: ["b"], tools: { deny: ["c"] } },
      { deny: ["c", "a", "b"] },
    ],
    [{ tools: { include: ["a"], exclude: ["a", "b"] } }, { allow: ["a"] }],
    [{ tools: { exclude: "b" } }, { deny: ["b"] }],
    [{ default_tools_approval_mode: "prompt" }, { approval: "always" }],
    [{ default_tools_approval_mode: "writes" }, { approval: "auto" }],
    [{ default_tools_approval_mode: "approve" }, {}],
    [{ default_tools_approval_mode: "auto", approval: "always" }, { approval: "always" }],
    [
      { tools: { a: { approval_mode: "prompt" }, b: { approval_mode: "approve" } } },
      { tools: { a: "always" } },
    ],
    [
      { tools: { approval: { a: "never", b: "auto" }, a: { approval_mode: "writes" } } },
      { tools: { a: "auto", b: "auto" } },
    ],
    [{ require_approval: "always" }, { approval: "always" }],
    [{ requireApproval: true }, { approval: "always" }],
    [{ requireApproval: ["delete_*"] }, { tools: { "delete_*": "always" } }],
    [{ require_approval: { never: { tool_names: ["a"] } } }, { approval: "always" }],
    [{ require_approval: "never" }, {}],
  ];
  for (const [more, expected] of GUARDS) {
    it(`is kept as its own client means it: ${JSON.stringify(more)}`, async () => {
      const plain = { approval: undefined, allow: undefined, deny: [], tools: undefined };
      assert.deepEqual(await guardsOf(more), { ...plain, ...expected });
    });
  }

  it("that is not understood fails its own server, with the line", async () => {
    const { manifest } = await loadServers(
      `"good": {"command": "x"},
       "a": {"command": "x",
             "blockTools": ["y"]},
       "off": {"command": "x", "disabled": true, "confirm": "perhaps"}`,
    );
    assert.deepEqual(kindsIn(manifest), ["good stdio", "a unsupported", "off unsupported off"]);
    const [, spec] = manifest.servers;
    assert.match(spec?.kind === "unsupported" ? spec.reason : "", /^blockTools .*\(.*a\.json:3\)$/);
  });

  for (const more of [
    { permissions: { deny: ["x"] } },
    { options: [{ tools: { excluded: [] } }] },
    { metadata: { "ask-confirm": true } },
    { settings: { a: { b: { "Blocked Tools": ["x"] } } } },
    { "disabled tools": ["x"] },
    { "disabled.tools": ["x"] },
    { "disabled\u200bTools": ["x"] },
    { "\uff44isabledTools": ["x"] },
  ]) {
    it(`is found at any depth and in any spelling: ${JSON.stringify(more)}`, async () => {
      const { manifest } = await loadServers(
        `"a": ${JSON.stringify({ command: "x", ...more })}, "b": {"command": "x"}`,
      );
      assert.deepEqual(kindsIn(manifest), ["a unsupported", "b stdio"]);
    });
  }

  it("is no key of an environment, a header or an argument", async () => {
    const { manifest } = await loadServers(
      `"a": {"command": "x", "args": ["--deny"], "env": {"DENY_LIST": "x"}},
       "b": {"url": "https://x.example", "headers": {"X-Block": "x"}}`,
    );
    assert.deepEqual(kindsIn(manifest), ["a stdio", "b remote"]);
  });

  it("that a settings file has for whole servers switches them off", async () => {
    const servers = `"a": {"command": "x"}, "b": {"command": "x"}`;
    for (const [more, expected] of [
      [`"mcp": {"excluded": ["a"]}, `, ["a stdio off", "b stdio"]],
      [`"mcp": {"allowed": ["a"]}, `, ["a stdio", "b stdio off"]],
      [`"excludeMCPServers": ["a"], "allowMCPServers": ["a"], `, ["a stdio off", "b stdio off"]],
      [`"disabledMcpServers": ["b"], `, ["a stdio", "b stdio off"]],
      [`"mcp": {"excluded": "a"}, `, ["a stdio off", "b stdio off"]],
    ] as const) {
      const { manifest } = await loadServers(servers, more);
      assert.deepEqual(kindsIn(manifest), expected, more);
    }
  });

  it("is no permission: what a client runs without asking neither loosens nor asks for anything", async () => {
    for (const more of [
      { autoApprove: ["a"], alwaysAllow: ["b"], trust: true },
      { auto_approve: ["a"], "Always-Allow": [] },
      { autoApprove: "yes", alwaysAllow: { a: 1 }, trust: "perhaps" },
    ]) {
      const plain = { approval: undefined, allow: undefined, deny: [], tools: undefined };
      assert.deepEqual(await guardsOf(more), plain);
    }
    const { notes } = await loadServers(
      `"a": {"command": "x", "autoApprove": "yes", "trust": "perhaps"}`,
    );
    assert.equal(
      notes.filter((note) => /: (?:autoApprove|trust) is ignored: /.test(note)).length,
      2,
    );
  });
});

describe("a time limit in a client's entry", () => {
  for (const [file, ms] of [
    [".roo/mcp.json", 45_000],
    [".mcp.json", 45],
    ["cline_mcp_settings.json", 45_000],
    ["mcp.json", LIMIT_DEFAULTS.callTimeout],
    [".cursor/mcp.json", LIMIT_DEFAULTS.callTimeout],
  ] as const) {
    it(`counts in the unit of the client that the path names, or is reported: ${file}`, async () => {
      const text = `{"mcpServers": {"a": {"command": "x", "timeout": 45}}}`;
      const { manifest, notes } = await loadText(text, file);
      assert.equal(getServer(manifest, "a").callTimeout, ms);
      const isReported = notes.some((note) => note.includes("timeout"));
      assert.equal(isReported, ms === LIMIT_DEFAULTS.callTimeout);
    });
  }
});

describe("a file of a client that is no manifest", () => {
  const FILES = {
    "home/.codex/config.toml": [
      "codex",
      'model = "x"\n[mcp_servers.a]\ncommand = "x"',
      ":2:2: mcp_servers",
    ],
    "copy.toml": ["codex", '[mcp_servers.a]\ncommand = "x"', ":1:2: mcp_servers"],
    "x/.codex/config.toml": ["codex", 'model = "x"', ""],
    "home/.config/zed/settings.json": [
      "zed",
      '{"context_servers": {"a": {"command": "x"}}}',
      ":1:2: context_servers",
    ],
    "p/.zed/settings.json": ["zed", "{}", ":1:1"],
    "home/.config/amp/settings.json": ["amp", '{"amp.mcpServers": {}}', ':1:2: "amp.mcpServers"'],
    "p/opencode.jsonc": ["opencode", '{"mcp": {"a": {"type": "local"}}}', ":1:2: mcp"],
    "home/.claude.json": ["claude-code", '{"projects": {}}', ":1:1"],
  } as const;
  for (const [path, [client, text, place]] of Object.entries(FILES)) {
    itIn(`names the client and the import: ${path}`, async (folder) => {
      const file = await folder.write(path, text);
      const problems = await folder.loadProblems({ files: [file] });
      const [problem = "", ...others] = problems;
      assert.deepEqual(others, []);
      assert.ok(problem.startsWith(`${path}${place}: `), problem);
      assert.ok(problem.endsWith(`toolmux import ${client}`), problem);
    });
  }

  it("does not include a manifest, whatever it is called", async () => {
    for (const name of ["opencode.json", "zed/settings.json"])
      await loadText('{"servers": {"a": {"command": "x"}}}', name);
  });
});

describe("null in a manifest", () => {
  it("is an absent key", async () => {
    const { manifest } = await loadText(
      `{"hub": {"name": null, "mode": null}, "defaults": {"reconnect": {"policy": null}}, "plugins": null,
        "servers": {"a": {"command": "x", "cwd": null, "args": null, "env": {"A": null, "B": "1"},
          "tools": {"allow": null, "deny": ["x"], "rename": {"a": null}}}}}`,
      "m.json",
    );
    const { env, cwd, args, tools } = getServer(manifest, "a");
    assert.deepEqual(plainCopy([env, cwd ?? "-", args]), [{ B: "1" }, "-", []]);
    assert.deepEqual(plainCopy([tools.allow ?? "-", tools.deny, tools.rename]), ["-", ["x"], {}]);
    assert.equal(manifest.hub.name, "toolmux");
  });

  it("does not make a client's file of a manifest, nor the other way round", async () => {
    for (const text of [
      `{"mcpServers": {"a": {"command": "x"}}, "servers": null, "hub": null}`,
      `{"servers": {"a": {"command": "x"}}, "mcpServers": null, "inputs": null}`,
    ])
      assert.deepEqual(kindsIn((await loadText(text, "m.json")).manifest), ["a stdio"]);
  });

  it("stays where every JSON value counts, and is no value of a key that is needed", async () => {
    const meta = `{"servers": {"a": {"command": "x", "tools": {"meta": {"t": {"k": null}}}}}}`;
    const { manifest } = await loadText(meta, "m.json");
    assert.deepEqual(plainCopy(getServer(manifest, "a").tools.meta), { t: { k: null } });
    const needed = await findProblems(`{"servers": {"a": {"command": null}}}`, "m.json");
    assert.equal(needed.length, 1);
  });

  it("is not an empty list, which allows nothing", async () => {
    const { manifest } = await loadText('{"servers": {"a": {"command": "x", "tools": {"allow": []}}}}', "m.json"); // prettier-ignore
    assert.deepEqual(getServer(manifest, "a").tools.allow, []);
  });
});

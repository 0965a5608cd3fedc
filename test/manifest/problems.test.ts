import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HubError } from "../../src/base/errors.ts";
import { loadManifest } from "../../src/manifest/load.ts";
import { fileProblem, findNearest, manifestError } from "../../src/manifest/problems.ts";
import { findProblems, withManifestFolder } from "../fixtures/manifest/manifest-folder.ts";

const DURATION = `expected a duration such as "30s", "500ms" or "5m", or a number of milliseconds`;
const SIZE = `expected a size such as "64MiB" or "512KB", or a number of bytes`;
const SERVER_KEYS =
  "command, package, runner, args, env, inheritEnv, cwd, url, transport, headers, keyFile, ca, auth, oauth, plugin, title, description, icon, enabled, prefix, isolation, lazy, era, connectTimeout, callTimeout, maxCallTimeout, maxMessage, healthInterval, reconnect, idleStop, tools, prompts, skills";
const SEPARATES = "which separates a prefix from the name of a tool";

/** A server whose faults are the only ones. */
const server = (lines: string) => `[servers.a]\ncommand = "x"\n${lines}`;

type Row = readonly [text: string, ...problems: string[]];

const TOML: Record<string, readonly Row[]> = {
  "unknown keys": [
    [
      `colour = 1`,
      `t.toml:1:1: colour: unknown key; the known keys are $schema, hub, defaults, servers, plugins, secrets, search`,
    ],
    [`[server.a]\ncommand = "x"`, `t.toml:1:2: server: unknown key; did you mean "servers"?`],
    [`[hub]\nnmae = "x"`, `t.toml:2:1: hub.nmae: unknown key; did you mean "name"?`],
    [`hub.name_limit = 64`, `t.toml:1:5: hub.name_limit: unknown key; did you mean "nameLimit"?`],
    [
      `[defaults]\nCallTimeout = 1`,
      `t.toml:2:1: defaults.CallTimeout: unknown key; did you mean "callTimeout"?`,
    ],
    [
      server("inherit-env = []"),
      `t.toml:3:1: servers.a.inherit-env: unknown key; did you mean "inheritEnv"?`,
    ],
    [
      server("  tools.alow = []"),
      `t.toml:3:9: servers.a.tools.alow: unknown key; did you mean "allow"?`,
    ],
    [
      server("tools = { allow = [], deni = [] }"),
      `t.toml:3:23: servers.a.tools.deni: unknown key; did you mean "deny"?`,
    ],
    [
      `[hub]\nparalelStarts = 4`,
      `t.toml:2:1: hub.paralelStarts: unknown key; did you mean "parallelStarts"?`,
    ],
    [
      `[defaults]\nheathInterval = 1\nreconect.base = 1`,
      `t.toml:2:1: defaults.heathInterval: unknown key; did you mean "healthInterval"?`,
      `t.toml:3:1: defaults.reconect: unknown key; did you mean "reconnect"?`,
    ],
    [
      `[defaults]\nlazy = true`,
      `t.toml:2:1: defaults.lazy: unknown key; the known keys are connectTimeout, callTimeout, maxCallTimeout, maxMessage, healthInterval, reconnect, idleStop`,
    ],
    [
      `[defaults.reconnect]\nmax_attempts = 4`,
      `t.toml:2:1: defaults.reconnect.max_attempts: unknown key; did you mean "maxAttempts"?`,
    ],
    [
      server(`reconnect = { polcy = "none", base = "1s", retries = 3 }`),
      `t.toml:3:15: servers.a.reconnect.polcy: unknown key; did you mean "policy"?`,
      "t.toml:3:44: servers.a.reconnect.retries: unknown key; the known keys are policy, base, max, jitter, maxAttempts",
    ],
    [
      server("idle_stop = 0\nlasy = true"),
      `t.toml:3:1: servers.a.idle_stop: unknown key; did you mean "idleStop"?`,
      `t.toml:4:1: servers.a.lasy: unknown key; did you mean "lazy"?`,
    ],
    [
      server(`url = "u"`),
      "t.toml:2:1: servers.a.command: cannot be used together with url: a server has one of command, package, url and plugin",
    ],
    [
      server("disabled = true"),
      "t.toml:3:1: servers.a.disabled: unknown key; write enabled = false",
    ],
    [
      server(`"two words" = 1\nbackground = true`),
      `t.toml:3:1: servers.a."two words": unknown key; the known keys are ${SERVER_KEYS}`,
      `t.toml:4:1: servers.a.background: unknown key; the known keys are ${SERVER_KEYS}`,
    ],
    [
      `constructor = 1\n[hub]\ntoString = 1`,
      "t.toml:1:1: constructor: unknown key; the known keys are $schema, hub, defaults, servers, plugins, secrets, search",
      "t.toml:3:1: hub.toString: unknown key; the known keys are name, separator, nameLimit, clientPrefix, listWait, parallelStarts, control, instructions, evictSessions, httpToken",
    ],
  ],
  "values of a wrong type": [
    [`hub = 5`, "t.toml:1:7: hub: expected a table, found a number"],
    [`servers = "x"`, "t.toml:1:11: servers: expected a table of servers, found a string"],
    [
      `[[servers]]\ncommand = "x"`,
      "t.toml:1:3: servers: expected a table of servers, found an array",
    ],
    [`servers.a = "npx"`, "t.toml:1:13: servers.a: expected a table, found a string"],
    [`defaults = 2024-01-01`, "t.toml:1:12: defaults: expected a table, found a date"],
    [`[hub]\nname = ""`, `t.toml:2:8: hub.name: expected a string that is not empty, found ""`],
    [`[hub]\nnameLimit = 64.5`, "t.toml:2:13: hub.nameLimit: expected a whole number, found 64.5"],
    [`[hub]\nnameLimit = "64"`, `t.toml:2:13: hub.nameLimit: expected a whole number, found "64"`],
    [
      `[hub]\nseparator = "::"`,
      `t.toml:2:13: hub.separator: expected letters, digits, _ and - (at least one), found "::"`,
    ],
    [
      `[hub]\nseparator = ""`,
      `t.toml:2:13: hub.separator: expected letters, digits, _ and - (at least one), found ""`,
    ],
    [server("enabled = 1"), "t.toml:3:11: servers.a.enabled: expected true or false, found 1"],
    [
      server(`args = "a b"`),
      "t.toml:3:8: servers.a.args: expected an array of strings, found a string",
    ],
    [
      server(`args = [\n  "a", # one\n  8080,\n  [true],\n]`),
      "t.toml:5:3: servers.a.args[1]: expected a string, found a number",
      "t.toml:6:3: servers.a.args[2]: expected a string, found an array",
    ],
    [
      server(`env = { A = "a", B = 5, C = true }`),
      "t.toml:3:22: servers.a.env.B: expected a string, found a number",
      "t.toml:3:29: servers.a.env.C: expected a string, found a boolean",
    ],
    [server(`env = ["A=1"]`), "t.toml:3:7: servers.a.env: expected a table, found an array"],
    [
      server(`[servers.a.env]\n  A.B = "x"`),
      "t.toml:4:3: servers.a.env.A: expected a string, found a table",
    ],
    [
      server(`inheritEnv = ["AWS_*", "A=1"]`),
      `t.toml:3:15: servers.a.inheritEnv[0]: expected the name of an environment variable, found "AWS_*"`,
      `t.toml:3:24: servers.a.inheritEnv[1]: expected the name of an environment variable, found "A=1"`,
    ],
    [
      "[hub]\nparallelStarts = 0",
      "t.toml:2:18: hub.parallelStarts: expected a whole number, at least 1, found 0",
    ],
    [
      "[hub]\nparallelStarts = 1.5",
      "t.toml:2:18: hub.parallelStarts: expected a whole number, at least 1, found 1.5",
    ],
    [
      server(`isolation = "perclient"`),
      `t.toml:3:13: servers.a.isolation: expected "shared" or "perClient", found "perclient"`,
    ],
    [server(`lazy = "yes"`), `t.toml:3:8: servers.a.lazy: expected true or false, found "yes"`],
    [
      server(`reconnect = "none"`),
      "t.toml:3:13: servers.a.reconnect: expected a table, found a string",
    ],
    [
      server(`[servers.a.reconnect]\npolicy = "linear"\njitter = 1.1\nmaxAttempts = -1`),
      `t.toml:4:10: servers.a.reconnect.policy: expected "none", "immediate" or "exponential", found "linear"`,
      "t.toml:5:10: servers.a.reconnect.jitter: expected a number between 0 and 1, found 1.1",
      "t.toml:6:15: servers.a.reconnect.maxAttempts: expected a whole number, 0 for no limit, found -1",
    ],
    [
      `[defaults]\nreconnect = { policy = 1, jitter = "a", maxAttempts = 0.5 }`,
      `t.toml:2:24: defaults.reconnect.policy: expected "none", "immediate" or "exponential", found 1`,
      `t.toml:2:36: defaults.reconnect.jitter: expected a number between 0 and 1, found "a"`,
      "t.toml:2:55: defaults.reconnect.maxAttempts: expected a whole number, 0 for no limit, found 0.5",
    ],
    [server("tools = []"), "t.toml:3:9: servers.a.tools: expected a table, found an array"],
    [
      server(`tools.allow = [""]`),
      `t.toml:3:16: servers.a.tools.allow[0]: expected a string that is not empty, found ""`,
    ],
    [
      server("tools.rename = { a = 1, b = '' }"),
      "t.toml:3:22: servers.a.tools.rename.a: expected a string, found 1",
      `t.toml:3:29: servers.a.tools.rename.b: expected a string that is not empty, found ""`,
    ],
    [
      server("tools.annotations.t = { readOnlyHint = 'x', readonly = true }"),
      `t.toml:3:40: servers.a.tools.annotations.t.readOnlyHint: expected true or false, found "x"`,
      "t.toml:3:45: servers.a.tools.annotations.t.readonly: unknown key; the known keys are title, readOnlyHint, destructiveHint, idempotentHint, openWorldHint",
    ],
    [
      server("tools.meta.t = { at = 2020-01-01, n = inf }"),
      "t.toml:3:23: servers.a.tools.meta.t.at: expected a value that JSON has, found a date",
      "t.toml:3:39: servers.a.tools.meta.t.n: expected a value that JSON has, found Infinity",
    ],
  ],
  "rules about several keys beside other problems": [
    [
      `[hub]\nhttpToken = "\${cmd:x}"\nnmae = "x"`,
      "t.toml:2:13: hub.httpToken: found the unknown placeholder ${cmd:…}; known placeholders: ${env:NAME}, ${file:PATH}, ${secret:NAME} and ${cmd:COMMAND}",
      `t.toml:3:1: hub.nmae: unknown key; did you mean "name"?`,
    ],
    [
      `[secrets]\nsources = ["file", "file"]\ncommands = 1`,
      "t.toml:2:20: secrets.sources[1]: is in the list twice",
      "t.toml:3:12: secrets.commands: expected true or false, found 1",
    ],
    [
      server(`url = "u"\ncwd = 5\ncolour = 1`),
      "t.toml:2:1: servers.a.command: cannot be used together with url: a server has one of command, package, url and plugin",
      "t.toml:4:1: servers.a.cwd: cannot be used together with url, because toolmux starts no process for a url",
      "t.toml:4:7: servers.a.cwd: expected a string, found a number",
      `t.toml:5:1: servers.a.colour: unknown key; the known keys are ${SERVER_KEYS}`,
    ],
    [
      `[servers.a]\nplugin = "p"\nenv.A = "x"`,
      `t.toml:2:10: servers.a.plugin: there is no plugin "p": [[plugins]] names none`,
      "t.toml:3:1: servers.a.env: cannot be used together with plugin, because the plugin provides the server",
    ],
    [
      `[servers.a]\npackage = "docker"`,
      `t.toml:2:11: servers.a.package: expected a package such as "npm:@scope/name@1.2.3", "pypi:name==1.2" or "docker:image:tag", found "docker"`,
    ],
  ],
  "what is missing": [
    [`[servers.a]\nargs = []`, "t.toml:1:10: servers.a.command: is missing"],
    [`[servers]\na = { args = [] }`, "t.toml:2:1: servers.a.command: is missing"],
    [
      `[servers.a]\nargs = []\n[servers.a.env]\nX = "1"`,
      "t.toml:1:10: servers.a.command: is missing",
    ],
    [`servers.a.args = []`, "t.toml:1:9: servers.a.command: is missing"],
    [
      server(`[servers.""]\ncommand = "x"\nprefix = "p"`),
      `t.toml:3:10: servers."": a server needs a name`,
    ],
    [
      `[servers.a]\ncommand = ""`,
      "t.toml:2:11: servers.a.command: expected a string that is not empty, found a string",
    ],
  ],
  plugins: [
    [
      `[plugins]\nuse = "x"`,
      "t.toml:1:2: plugins: expected an array of tables, found a table; in TOML, write [[plugins]] before each plugin",
    ],
    [`plugins = "x"`, "t.toml:1:11: plugins: expected an array of tables, found a string"],
    [`plugins = ["x"]`, "t.toml:1:12: plugins[0]: expected a table, found a string"],
    [`[[plugins]]`, "t.toml:1:3: plugins[0].use: is missing"],
    [
      `[[plugins]]\nuse = "a"\n[[plugins]]\n  use = ""`,
      `t.toml:4:9: plugins[1].use: expected a string that is not empty, found ""`,
    ],
    [`[[plugins]]\nuse = 5`, "t.toml:2:7: plugins[0].use: expected a string, found 5"],
    [
      `[[plugins]]\nuse = "a"\noption = {}\nserver = []`,
      `t.toml:3:1: plugins[0].option: unknown key; did you mean "options"?`,
      `t.toml:4:1: plugins[0].server: unknown key; did you mean "servers"?`,
    ],
    [
      `[[plugins]]\nuse = "a"\ncolour = 1`,
      "t.toml:3:1: plugins[0].colour: unknown key; the known keys are use, options, servers, tools",
    ],
    [
      `[[plugins]]\nuse = "a"\noptions = "sk-123"`,
      "t.toml:3:11: plugins[0].options: expected a table, found a string",
    ],
    [
      `[[plugins]]\nuse = "a"\noptions = []`,
      "t.toml:3:11: plugins[0].options: expected a table, found an array",
    ],
    [
      `[[plugins]]\nuse = "a"\nservers = "x"\ntools = [1, ""]`,
      't.toml:3:11: plugins[0].servers: expected an array of names or patterns, found "x"',
      "t.toml:4:10: plugins[0].tools[0]: expected a string, found 1",
      `t.toml:4:13: plugins[0].tools[1]: expected a string that is not empty, found ""`,
    ],
    [`plugin = []`, `t.toml:1:1: plugin: unknown key; did you mean "plugins"?`],
  ],
  "servers of plugins": [
    [
      `[servers.a]\nplugin = "p"\ncommand = "x"\nargs = []\n[[plugins]]\nuse = "p"`,
      "t.toml:3:1: servers.a.command: cannot be used together with plugin: a server has one of command, package, url and plugin",
      "t.toml:4:1: servers.a.args: cannot be used together with plugin, because the plugin provides the server",
    ],
    [
      `[servers.a]\nplugin = "p"\nenv.A = "x"\ninheritEnv = []\ncwd = "."\n[[plugins]]\nuse = "p"`,
      "t.toml:3:1: servers.a.env: cannot be used together with plugin, because the plugin provides the server",
      "t.toml:4:1: servers.a.inheritEnv: cannot be used together with plugin, because the plugin provides the server",
      "t.toml:5:1: servers.a.cwd: cannot be used together with plugin, because the plugin provides the server",
    ],
    [
      `[servers.a]\nplugin = ""`,
      `t.toml:2:10: servers.a.plugin: expected the name of a plugin: letters, digits, _ and -, found ""`,
    ],
    [
      `[servers.a]\nplugin = "./x.ts"`,
      `t.toml:2:10: servers.a.plugin: expected the name of a plugin: letters, digits, _ and -, found "./x.ts"`,
    ],
    [`[servers.a]\nplugin = 5`, "t.toml:2:10: servers.a.plugin: expected a string, found 5"],
    [
      `[servers.a]\nplugn = "p"`,
      `t.toml:2:1: servers.a.plugn: unknown key; did you mean "plugin"?`,
    ],
  ],
  "durations and sizes": [
    [`[hub]\nlistWait = "5"`, `t.toml:2:12: hub.listWait: ${DURATION}, found "5"`],
    [
      `[hub]\nlistWait = -1`,
      "t.toml:2:12: hub.listWait: expected a duration of at most 2147483647 ms (24.8 days), found -1",
    ],
    [`[hub]\nlistWait = nan`, `t.toml:2:12: hub.listWait: ${DURATION}, found NaN`],
    [
      `[hub]\nlistWait = inf`,
      "t.toml:2:12: hub.listWait: expected a duration of at most 2147483647 ms (24.8 days), found Infinity",
    ],
    [
      `[hub]\nlistWait = "25d"`,
      `t.toml:2:12: hub.listWait: expected a duration of at most 2147483647 ms (24.8 days), found "25d"`,
    ],
    [
      `[defaults]\nconnectTimeout = 0`,
      "t.toml:2:18: defaults.connectTimeout: expected a duration of at least 1 ms and at most 2147483647 ms (24.8 days), found 0",
    ],
    [
      server(`idleStop = "soon"\nhealthInterval = -1`),
      `t.toml:3:12: servers.a.idleStop: ${DURATION}, found "soon"`,
      "t.toml:4:18: servers.a.healthInterval: expected 0 for never, or a duration of at least 1 s and at most 2147483647 ms (24.8 days), found -1",
    ],
    [
      `[defaults]\nhealthInterval = "999ms"\n${server("healthInterval = 1")}`,
      't.toml:2:18: defaults.healthInterval: expected 0 for never, or a duration of at least 1 s and at most 2147483647 ms (24.8 days), found "999ms"',
      "t.toml:5:18: servers.a.healthInterval: expected 0 for never, or a duration of at least 1 s and at most 2147483647 ms (24.8 days), found 1",
    ],
    [
      server(`reconnect = { base = 0, max = "1 week" }`),
      "t.toml:3:22: servers.a.reconnect.base: expected a duration of at least 1 ms and at most 2147483647 ms (24.8 days), found 0",
      `t.toml:3:31: servers.a.reconnect.max: ${DURATION}, found "1 week"`,
    ],
    [
      `[defaults]\nconnectTimeout = true`,
      `t.toml:2:18: defaults.connectTimeout: ${DURATION}, found a boolean`,
    ],
    [
      server(`tools.timeout = { x = "1y" }`),
      `t.toml:3:23: servers.a.tools.timeout.x: ${DURATION}, found "1y"`,
    ],
    [`[defaults]\nmaxMessage = "lots"`, `t.toml:2:14: defaults.maxMessage: ${SIZE}, found "lots"`],
    [
      `[defaults]\nmaxMessage = "4GiB"`,
      `t.toml:2:14: defaults.maxMessage: expected a size between 1 and 2147483647 bytes, found "4GiB"`,
    ],
    [
      server("maxMessage = 0"),
      "t.toml:3:14: servers.a.maxMessage: expected a size between 1 and 2147483647 bytes, found 0",
    ],
  ],
  "rules over several keys": [
    [
      `[defaults]\ncallTimeout = "20m"`,
      "t.toml:2:15: defaults.callTimeout: callTimeout (20m) is longer than maxCallTimeout (15m); set maxCallTimeout to 20m or more",
    ],
    [
      `[defaults]\nmaxCallTimeout = 500`,
      "t.toml:2:18: defaults.maxCallTimeout: callTimeout (1m) is longer than maxCallTimeout (500ms); set maxCallTimeout to 1m or more",
    ],
    [
      server(`maxCallTimeout = "59s"`),
      "t.toml:3:18: servers.a.maxCallTimeout: callTimeout (1m) is longer than maxCallTimeout (59s); set maxCallTimeout to 1m or more",
    ],
    [
      `[defaults.reconnect]\nbase = "2m"`,
      "t.toml:2:8: defaults.reconnect.base: reconnect.base (2m) is longer than reconnect.max (1m); set reconnect.max to 2m or more",
    ],
    [
      `[defaults]\nreconnect = { max = "500ms" }`,
      "t.toml:2:21: defaults.reconnect.max: reconnect.base (1s) is longer than reconnect.max (500ms); set reconnect.max to 1s or more",
    ],
    [
      `defaults.reconnect.max = "5s"\n${server(`reconnect = { jitter = 0, base = "6s" }`)}`,
      "t.toml:4:34: servers.a.reconnect.base: reconnect.base (6s) is longer than reconnect.max (5s); set reconnect.max to 6s or more",
    ],
    [
      server(`maxCallTimeout = 1\nreconnect.max = 1`),
      "t.toml:3:18: servers.a.maxCallTimeout: callTimeout (1m) is longer than maxCallTimeout (1ms); set maxCallTimeout to 1m or more",
      "t.toml:4:17: servers.a.reconnect.max: reconnect.base (1s) is longer than reconnect.max (1ms); set reconnect.max to 1s or more",
    ],
    [
      `[hub]\nnameLimit = 29`,
      "t.toml:2:13: hub.nameLimit: nameLimit minus the length of clientPrefix leaves 15 characters for a name; a name needs at least 16",
    ],
    [
      `[hub]\nclientPrefix = "${"x".repeat(49)}"`,
      "t.toml:2:16: hub.clientPrefix: nameLimit minus the length of clientPrefix leaves 15 characters for a name; a name needs at least 16",
    ],
  ],
  prefixes: [
    [
      `[servers."my server"]\ncommand = "x"`,
      `t.toml:1:10: servers."my server": the name "my server" has a space, which the names of tools cannot have; add prefix = "my_server"`,
    ],
    [
      `[servers.a__b]\ncommand = "x"`,
      `t.toml:1:10: servers.a__b: the name "a__b" has "__", ${SEPARATES}; add prefix = "a_b"`,
    ],
    [
      `[servers._a]\ncommand = "x"`,
      `t.toml:1:10: servers._a: the name "_a" begins or ends with a character of "__", ${SEPARATES}; add prefix = "a"`,
    ],
    [
      server(`prefix = "a_"`),
      `t.toml:3:10: servers.a.prefix: the prefix "a_" begins or ends with a character of "__", ${SEPARATES}; write prefix = "a"`,
    ],
    [
      server(`prefix = "a.b"`),
      `t.toml:3:10: servers.a.prefix: the prefix "a.b" has ".", which the names of tools cannot have; write prefix = "a_b"`,
    ],
    [
      `hub.separator = "-"\n[servers.my-fs]\ncommand = "x"`,
      `t.toml:2:10: servers.my-fs: the name "my-fs" has "-", ${SEPARATES}; add prefix = "my_fs"`,
    ],
    [
      server(`[servers.b]\ncommand = "x"\nprefix = "a"`),
      `t.toml:5:10: servers.b.prefix: the servers "a" and "b" have the same prefix "a"; set another prefix for one of them: prefix = "…"`,
    ],
    [
      server(`prefix = "b"\n[servers.b]\ncommand = "x"`),
      `t.toml:4:10: servers.b: the servers "a" and "b" have the same prefix "b"; set another prefix for one of them: prefix = "…"`,
    ],
  ],
  "forms of interpolation": [
    [
      server('args = ["${HOME}"]'),
      "t.toml:3:9: servers.a.args[0]: found ${HOME}; write ${env:HOME}, or $${HOME} for this text itself",
    ],
    [
      server('args = ["${HOME:-x}"]'),
      "t.toml:3:9: servers.a.args[0]: found ${HOME}; write ${env:HOME}, or $${HOME} for this text itself",
    ],
    [
      server('env.A = "${vault:my/token}"'),
      "t.toml:3:9: servers.a.env.A: found the unknown placeholder ${vault:…}; known placeholders: ${env:NAME}, ${file:PATH}, ${secret:NAME} and ${cmd:COMMAND}",
    ],
    [
      server('args = ["${secret:}", "${cmd:}"]'),
      "t.toml:3:9: servers.a.args[0]: found ${secret:} without a name",
      "t.toml:3:23: servers.a.args[1]: found ${cmd:} without a command",
    ],
    [
      server('cwd = "${input:folder}"'),
      "t.toml:3:7: servers.a.cwd: found ${input:…}, which only editors support; set an environment variable and write ${env:NAME}",
    ],
    [server('cwd = "${env:A"'), "t.toml:3:7: servers.a.cwd: found a ${ without a closing }"],
    [
      server('cwd = "${env:A:-${env:B}}"'),
      "t.toml:3:7: servers.a.cwd: found a ${…} inside another ${…}, which is not supported",
    ],
    [server('cwd = "${env:}"'), "t.toml:3:7: servers.a.cwd: found a ${…} without a variable name"],
    [server('cwd = "${file:}"'), "t.toml:3:7: servers.a.cwd: found ${file:} without a path"],
    [
      server('cwd = "${}"'),
      "t.toml:3:7: servers.a.cwd: found an unknown placeholder; known placeholders: ${env:NAME}, ${file:PATH}, ${secret:NAME} and ${cmd:COMMAND}",
    ],
    [
      '[servers.a]\ncommand = "${x y:sk-123}"',
      "t.toml:2:11: servers.a.command: found an unknown placeholder; known placeholders: ${env:NAME}, ${file:PATH}, ${secret:NAME} and ${cmd:COMMAND}",
    ],
  ],
  syntax: [
    [`[servers.a]\ncommand = `, "t.toml:2:11: not valid TOML: command has no value"],
    [`[servers.a]\ncommand = "x\n`, 't.toml:2:11: not valid TOML: the text has no closing "'],
    [`[servers.a]\nenv.A = sk-123`, 't.toml:2:9: not valid TOML: a text needs quotes: env.A = "…"'],
    [`[a]\n[a]`, "t.toml:2:2: not valid TOML: [a] is already in line 1: merge the two tables"],
    [
      `a = ${"[".repeat(5000)}`,
      "t.toml:1:1005: not valid TOML: document contains excessively nested structures. aborting.",
    ],
  ],
};

const JSONC: Record<string, readonly Row[]> = {
  "wrong content": [
    [
      `{\n  "hub": {"nmae": "x", "listWait": "x"},\n  "servers": {\n    "a": {"comand": "x"}\n  }\n}`,
      `t.json:2:11: hub.nmae: unknown key; did you mean "name"?`,
      `t.json:2:36: hub.listWait: ${DURATION}, found "x"`,
      `t.json:4:11: servers.a.comand: unknown key; did you mean "command"?`,
    ],
    [
      `{\n  "defaults": {"reconnect": {"bse": 1, "policy": null}},\n  "servers": {"a": {"command": "x", "reconnect": {\n    "base": "2m"}}}\n}`,
      `t.json:2:30: defaults.reconnect.bse: unknown key; did you mean "base"?`,
      `t.json:2:50: defaults.reconnect.policy: expected "none", "immediate" or "exponential", found null`,
    ],
    [
      `{"servers": {"a": {"command": "x", "reconnect": {\n  "base": "2m"}}}}`,
      "t.json:2:11: servers.a.reconnect.base: reconnect.base (2m) is longer than reconnect.max (1m); set reconnect.max to 2m or more",
    ],
    [
      `{"servers": {"a": {"command": "x", "args": ["a", null, 5]}}}`,
      "t.json:1:50: servers.a.args[1]: expected a string, found null",
      "t.json:1:56: servers.a.args[2]: expected a string, found a number",
    ],
    [
      `{"servers": {"a": {"command": "x"},\r\n\t"a": {"command": "y"}}}`,
      "t.json:2:2: servers.a: is set twice; remove one of the two",
    ],
    [
      `{"plugins": {"use": "x"}}`,
      "t.json:1:13: plugins: expected an array of tables, found a table; in TOML, write [[plugins]] before each plugin",
    ],
    [
      `{"plugins": [{"use": "x"},\n  {"us": "y", "tools": null}]}`,
      "t.json:2:3: plugins[1].use: is missing",
      `t.json:2:4: plugins[1].us: unknown key; did you mean "use"?`,
      "t.json:2:24: plugins[1].tools: expected an array of names or patterns, found null",
    ],
    [`[1, 2]`, "t.json:1:1: expected a table, found an array"],
    [`"x"`, "t.json:1:1: expected a table, found a string"],
    [
      `{"servers": {}, "mcpServers": {}}`,
      `t.json:1:17: mcpServers: cannot be in the same file as "servers"; move all servers into one of the two`,
    ],
    [`{"mcpServers": []}`, "t.json:1:16: mcpServers: expected a table of servers, found an array"],
    [
      `{"mcpServers": {}, "hub": {"nmae": 1}}`,
      `t.json:1:28: hub.nmae: unknown key; did you mean "name"?`,
    ],
  ],
  syntax: [
    ["", "t.json:1:1: not valid JSON: a value is missing"],
    [`{"a": sk-123}`, "t.json:1:7: not valid JSON: this is no value; a text needs double quotes"],
    [`{"a" 1}`, "t.json:1:6: not valid JSON: a colon is missing after the key"],
    [`{"a": 1\n "b": 2}`, "t.json:2:2: not valid JSON: a comma is missing"],
    [`{"a": [1, 2}`, "t.json:1:12: not valid JSON: a comma is missing"],
    [`{"a": 1} x`, "t.json:1:10: not valid JSON: this is no value; a text needs double quotes"],
    ["[".repeat(200_000), "t.json: nested too deeply"],
  ],
};

describe("a wrong manifest", () => {
  for (const [name, groups] of [
    ["t.toml", TOML],
    ["t.json", JSONC],
  ] as const) {
    for (const [group, rows] of Object.entries(groups)) {
      for (const [text, ...expected] of rows) {
        const title = JSON.stringify(text.length > 70 ? `${text.slice(0, 70)}…` : text);
        it(`in ${name} is told by place, key and remedy: ${group}: ${title}`, async () => {
          assert.deepEqual(await findProblems(text, name), expected);
        });
      }
    }
  }

  it("has all its problems told at once, over files and the variable, each file in its order", () =>
    withManifestFolder(async (folder) => {
      const a = await folder.write(
        "a.toml",
        `[hub]\nnmae = 1\n[servers.x]\ncommand = "c"\nargs = ["\${X}", 2]`,
      );
      const b = await folder.write("b.json", `{"servers": {`);
      const env = { TOOLMUX_SERVERS: `{"y": {"command": 5},\n "z": {"cmd": "secret"}}` };
      assert.deepEqual(await folder.loadProblems({ files: [a, b, `${folder.root}/c.toml`], env }), [
        "c.toml: does not exist",
        "b.json:1:14: not valid JSON: a closing } is missing",
        `a.toml:2:1: hub.nmae: unknown key; did you mean "name"?`,
        "a.toml:5:9: servers.x.args[0]: found ${X}; write ${env:X}, or $${X} for this text itself",
        "a.toml:5:17: servers.x.args[1]: expected a string, found a number",
        "TOOLMUX_SERVERS:1:19: y.command: expected a string, found a number",
        `TOOLMUX_SERVERS:2:8: z.cmd: unknown key; did you mean "command"?`,
      ]);
    }));

  it("has a rule between servers told even if one of them has another problem", async () => {
    assert.deepEqual(
      await findProblems(
        `[servers.a__b]\ncommand = 5\n[servers.c]\ncommand = "x"\nprefix = "d"\n[servers.d]`,
      ),
      [
        `t.toml:1:10: servers.a__b: the name "a__b" has "__", ${SEPARATES}; add prefix = "a_b"`,
        "t.toml:2:11: servers.a__b.command: expected a string, found a number",
        "t.toml:6:10: servers.d.command: is missing",
        `t.toml:6:10: servers.d: the servers "c" and "d" have the same prefix "d"; set another prefix for one of them: prefix = "…"`,
      ],
    );
  });

  it("tells the prefix of a server that has another problem", async () => {
    assert.deepEqual(await findProblems(`[servers.a]\nprefix = "_"`), [
      "t.toml:1:10: servers.a.command: is missing",
      `t.toml:2:10: servers.a.prefix: the prefix "_" begins or ends with a character of "__", ${SEPARATES}; write prefix = "server"`,
    ]);
  });

  it("is not blamed by rules whose settings are wrong themselves or cannot be read", () =>
    withManifestFolder(async (folder) => {
      const text = `[hub]\nseperator = "-"\n[servers.a__b]\ncommand = "x"`;
      assert.deepEqual(await findProblems(text), [
        `t.toml:2:1: hub.seperator: unknown key; did you mean "separator"?`,
      ]);
      const a = await folder.write("a.toml", `hub.separator = -`);
      const b = await folder.write("b.toml", `[servers.a__b]\ncommand = "x"`);
      assert.deepEqual(await folder.loadProblems({ files: [a, b] }), [
        'a.toml:1:17: not valid TOML: a text needs quotes: hub.separator = "…"',
      ]);
    }));

  it("names both servers of one prefix when they come from two files", () =>
    withManifestFolder(async (folder) => {
      const a = await folder.write("a.toml", `[servers.a]\ncommand = "x"`);
      const b = await folder.write("b.toml", `[servers.b]\ncommand = "x"\nprefix = "a"`);
      assert.deepEqual(await folder.loadProblems({ files: [a, b] }), [
        `b.toml:3:10: servers.b.prefix: the servers "a" and "b" have the same prefix "a"; set another prefix for one of them: prefix = "…"`,
      ]);
    }));

  it("blames the file that set the last of two limits", () =>
    withManifestFolder(async (folder) => {
      const a = await folder.write("a.toml", `defaults.maxCallTimeout = "2m"`);
      const b = await folder.write("b.toml", `defaults.callTimeout = "3m"`);
      const c = await folder.write("c.toml", `hub.name = "c"`);
      assert.deepEqual(await folder.loadProblems({ files: [a, b, c] }), [
        "b.toml:1:24: defaults.callTimeout: callTimeout (3m) is longer than maxCallTimeout (2m); set maxCallTimeout to 3m or more",
      ]);
    }));

  it("blames the file that set the last of two limits in a table", () =>
    withManifestFolder(async (folder) => {
      const a = await folder.write("a.toml", `defaults.reconnect = { max = "2m" }`);
      const b = await folder.write("b.toml", `[defaults]\nreconnect.base = "3m"`);
      const c = await folder.write("c.toml", `defaults.reconnect.jitter = 0`);
      assert.deepEqual(await folder.loadProblems({ files: [a, b, c] }), [
        "b.toml:2:18: defaults.reconnect.base: reconnect.base (3m) is longer than reconnect.max (2m); set reconnect.max to 3m or more",
      ]);
    }));

  it("says why a file cannot be read", () =>
    withManifestFolder(async (folder) => {
      await folder.write("dir/x", "");
      const binary = await folder.write("binary.toml", new Uint8Array([0x61, 0xff, 0xfe]));
      const files = [`${folder.root}/none.toml`, `${folder.root}/dir`, binary, "/dev/null"];
      assert.deepEqual(await folder.loadProblems({ files }), [
        "none.toml: does not exist",
        `${folder.root}/dir: is a folder, not a file`.replace(`${folder.root}/`, ""),
        "/dev/null: is not a regular file",
        "binary.toml: is not UTF-8 text",
      ]);
    }));

  it("never shows what stands in command, args, env or cwd", async () => {
    const secret = "sk-very-secret";
    const rows = [
      `[servers.a]\ncommand = "x"\nenv = { A = { B = "${secret}" } }`,
      `[servers.a]\ncommand = "x"\nenv = "${secret}"`,
      `[servers.a]\ncommand = "x"\nargs = "${secret}"`,
      `[servers.a]\ncommand = ["${secret}"]`,
      `servers.a = "${secret}"`,
      `[servers.a]\ncommand = "x"\ncwd = ["${secret}"]`,
      `[servers.a]\ncommand = "x"\nenv.A = "\${${secret}:${secret}/x:-${secret}"`,
      `[servers.a]\ncommand = "x"\nenv.A = "\${vault:${secret}}"`,
      `[servers.a]\ncommand = "x"\ntoken = "${secret}"`,
      `[servers.a]\ncommand = "x"\nenv.A = "${secret}`,
      `[servers.a]\ncommand = "x"\nenv.A = ${secret}`,
      `[servers.a]\ncommand = "x"\nenv.A = "${secret}" "${secret}"`,
      `[[plugins]]\nuse = "x"\noptions = "${secret}"`,
      `[[plugins]]\nuse = "x"\noptions = ["${secret}"]`,
      `{"servers": {"a": {"command": "x", "env": {"A": "${secret}}}}`,
      `{"servers": {"a": {"command": "x", "env": {"A": ${secret}}}}`,
    ];
    for (const text of rows) {
      const problems = await findProblems(text, "t");
      assert.ok(problems.length > 0 && !problems.join("\n").includes(secret), problems.join("\n"));
    }
  });

  it("becomes one error with a line per problem for whoever cannot go on", () => {
    const error = manifestError([
      {
        file: "/a.toml",
        position: { line: 1, column: 2 },
        path: ["hub", "x"],
        at: "key",
        message: "unknown key",
      },
      fileProblem("/b.toml", "does not exist"),
    ]);
    assert.ok(error instanceof HubError);
    assert.equal(error.code, "manifestInvalid");
    assert.equal(error.message, "/a.toml:1:2: hub.x: unknown key\n/b.toml: does not exist");
    assert.equal(error.properties.exit, 2);
  });
});

describe("the nearest key", () => {
  const known = ["command", "args", "env", "inheritEnv", "cwd", "enabled", "prefix", "tools"];
  for (const [key, nearest] of [
    ["comand", "command"],
    ["cmd", "cwd"],
    ["commnad", "command"],
    ["ARGS", "args"],
    ["arg", "args"],
    ["agrs", "args"],
    ["inherit_env", "inheritEnv"],
    ["enable", "enabled"],
    ["pwd", "cwd"],
    ["tool", "tools"],
    ["x", undefined],
    ["", undefined],
    ["isolation", undefined],
    ["a".repeat(10_000), undefined],
  ] as const) {
    it(`to ${JSON.stringify(key.slice(0, 20))} is ${nearest ?? "none"}`, () => {
      assert.equal(findNearest(key, known), nearest);
    });
  }
});

describe("a problem within the table of one server", () => {
  /** Whether each server can be run, in order; undefined if the manifest is refused as a whole. */
  const outcome = (text: string, name = "t.toml", env = {}): Promise<unknown> =>
    withManifestFolder(async (folder) => {
      const loaded = await folder.load({ files: [await folder.write(name, text)], env });
      if (!loaded.ok) return undefined;
      return loaded.manifest.servers.map((spec) => [spec.name, spec.kind]);
    });
  const GOOD = '[servers.good]\ncommand = "x"\n';
  const COSTS = [
    ["good", "stdio"],
    ["bad", "invalid"],
  ];

  for (const [what, table] of Object.entries({
    "an unknown key": 'command = "x"\ncomand = "y"',
    "nothing to start": "args = []",
    "a value of a wrong type": 'command = "x"\nargs = 5',
    "limits in a wrong order": 'command = "x"\nmaxCallTimeout = 1',
    "the prefix of another": 'command = "x"\nprefix = "good"',
    "a prefix that is none": 'command = "x"\nprefix = "_"',
    "a form that there is not": 'command = "x"\nargs = ["${HOME}"]',
    "a plugin where there is none": 'plugin = "nobody"',
  })) {
    it(`costs that server alone: ${what}`, async () => {
      assert.deepEqual(await outcome(`${GOOD}[servers.bad]\n${table}`), COSTS);
    });
  }

  it("costs that server alone in JSON, in TOOLMUX_SERVERS, and where the entry is no table", async () => {
    const servers = { good: { command: "x" }, bad: { comand: "x" } };
    assert.deepEqual(await outcome(JSON.stringify({ servers }), "t.json"), COSTS);
    const env = { TOOLMUX_SERVERS: JSON.stringify({ bad: { comand: "x" } }) };
    assert.deepEqual(await outcome(GOOD, "t.toml", env), COSTS);
    const odd = { servers: { good: { command: "x" }, bad: "x" } };
    assert.deepEqual(await outcome(JSON.stringify(odd), "t.json"), COSTS);
  });

  it("takes no prefix from a server that is right, wherever that stands", async () => {
    const text = `[servers.bad]\ncommand = 5\nprefix = "good"\n${GOOD}`;
    assert.deepEqual(await outcome(text), [
      ["bad", "invalid"],
      ["good", "stdio"],
    ]);
  });

  it("is told but costs nothing in a table that a later file replaces", () =>
    withManifestFolder(async (folder) => {
      const a = await folder.write("a.toml", "[servers.a]\ncomand = 'x'");
      const b = await folder.write("b.toml", "[servers.a]\ncommand = 'x'");
      const loaded = await folder.load({ files: [a, b] });
      assert.ok(loaded.ok && loaded.problems.length > 0);
      assert.deepEqual(
        loaded.manifest.servers.map(({ kind }) => kind),
        ["stdio"],
      );
    }));

  for (const [what, text] of Object.entries({
    "its syntax": `${GOOD}[servers.bad`,
    "[hub]": `[hub]\nnme = "x"\n${GOOD}`,
    "[defaults]": `[defaults]\ncallTimeout = 0\n${GOOD}`,
    "limits of the defaults in a wrong order": `[defaults]\ncallTimeout = 5\nmaxCallTimeout = 1\n${GOOD}`,
    plugins: `${GOOD}[[plugins]]\nuses = "x"`,
    "a key at the top": `${GOOD}\n[server.bad]\ncommand = "x"`,
  })) {
    it(`is another thing than one of the file, which is refused as a whole: ${what}`, async () => {
      assert.equal(await outcome(text), undefined);
    });
  }

  it("leaves a prefix to the server that has it in force, whatever the order", () =>
    withManifestFolder(async (folder) => {
      const file = await folder.write(
        "t.toml",
        `[servers.a]\ncommand = "x"\nprefix = "p"\n[servers.b]\ncommand = "x"\nprefix = "p"`,
      );
      const kinds = async (inForce: ReadonlyMap<string, string>) => {
        const loaded = await loadManifest({
          files: [file],
          env: { HOME: folder.home },
          cwd: folder.cwd,
          platform: "linux",
          runningPrefixes: () => inForce,
        });
        assert.ok(loaded.ok);
        return loaded.manifest.servers.map(({ kind }) => kind);
      };
      assert.deepEqual(await kinds(new Map()), ["stdio", "invalid"]);
      assert.deepEqual(await kinds(new Map([["b", "p"]])), ["invalid", "stdio"]);
    }));
});

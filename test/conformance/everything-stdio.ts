/**
 * The process that the hub starts as the everything server. Copies bytes between its stdio and the server that serves it in the
 * process of the suites, at a port of 127.0.0.1. The hub starts a hundred of them, and loading the server in each would
 * be most of what the suites cost. Run by bun.
 */
import { connect } from "node:net";
import process from "node:process";

const socket = connect(Number(process.argv[2]), "127.0.0.1");
process.stdin.pipe(socket).pipe(process.stdout);
socket.on("close", (isFailed) => process.exit(isFailed ? 1 : 0));

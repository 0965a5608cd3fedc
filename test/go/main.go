// Clients made with the Go SDK: one of each era, both attached to the shared hub of a manifest.
//
//	client COMMAND ARGUMENT...
//
// Each starts the command, lists the tools, calls one, and has a call open until it ends. Then it calls again; that of the
// legacy era waits until it is told to list the tools again. Prints the results of both as one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// limit is the time after which a client that waits has failed.
const limit = 90 * time.Second

// legacy is the protocol version of the client of the legacy era.
const legacy = "2025-11-25"

// result is what one client tells.
type result struct {
	Version string `json:"version"`
	Tools   int    `json:"tools"`
	Echo    string `json:"echo"`
	// Lost is the code of the error with which the open call has ended.
	Lost int64 `json:"lost"`
	// Again is the answer to the call after that.
	Again string `json:"again"`
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	versions := []string{legacy, "2026-07-28"}
	results := make([]result, len(versions))
	ended := make(chan error)
	for at, version := range versions {
		go func() {
			told, err := use(ctx, version, os.Args[1:])
			results[at] = told
			if err != nil {
				err = fmt.Errorf("%s: %w", version, err)
			}
			ended <- err
		}()
	}
	for range versions {
		if err := <-ended; err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		os.Exit(1)
	}
}

func use(ctx context.Context, version string, command []string) (result, error) {
	var told result
	changed := make(chan bool, 16)
	client := mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- true },
	})
	hub := exec.CommandContext(ctx, command[0], command[1:]...)
	hub.Stderr = os.Stderr
	transport := &mcp.CommandTransport{Command: hub}
	session, err := client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return told, err
	}
	defer session.Close()
	told.Version = session.InitializeResult().ProtocolVersion
	for _, err := range session.Tools(ctx, nil) {
		if err != nil {
			return told, err
		}
		told.Tools++
	}
	if told.Echo, err = echo(ctx, session, "one"); err != nil {
		return told, err
	}
	_, err = session.CallTool(ctx, &mcp.CallToolParams{Name: "a__hang"})
	var refused *jsonrpc.Error
	if !errors.As(err, &refused) {
		return told, fmt.Errorf("the open call has ended with %v", err)
	}
	told.Lost = refused.Code
	if told.Again, err = echo(ctx, session, "two"); err != nil {
		return told, err
	}
	if version == legacy {
		select {
		case <-changed:
		case <-ctx.Done():
			return told, errors.New("it was not told to list the tools again")
		}
	}
	return told, nil
}

// echo returns the text of the answer to a call whose argument is text.
func echo(ctx context.Context, session *mcp.ClientSession, text string) (string, error) {
	answer, err := session.CallTool(ctx, &mcp.CallToolParams{
		Name:      "a__echo",
		Arguments: map[string]any{"text": text},
	})
	if err != nil {
		return "", err
	}
	first, isText := answer.Content[0].(*mcp.TextContent)
	if !isText {
		return "", errors.New("the answer is no text")
	}
	return first.Text, nil
}

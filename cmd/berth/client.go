package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/berthd/berth/cmd/flags"
)

// endpoint is where a command asks, and for which model.
type endpoint struct {
	URL         string  `name:"url" help:"Base of the OpenAI API." default:"http://127.0.0.1:8080"`
	Model       string  `help:"Model name. Default: the first that the cluster serves."`
	APIKey      string  `name:"api-key" help:"API key, where the cluster has tenants; @FILE is the key in a file. Better so or in the environment, as BERTH_API_KEY."`
	MaxTokens   int     `help:"Most tokens of the answer." default:"64"`
	Temperature float64 `help:"0 always takes the likeliest token." default:"0"`
	Seed        *int64  `help:"Makes a sampled answer repeatable."`
	JSON        bool    `help:"Print the whole response as JSON instead of streaming its text."`
}

type completeCommand struct {
	endpoint
	N      int      `name:"n" help:"Answers, which share the prompt's pages; above 1 with a --temperature." default:"1"`
	Prompt []string `arg:"" optional:"" help:"The text to continue; standard input if there is none."`
}

// Run prints the prompt's continuation as it comes, and the request's id at the end on stderr.
func (c *completeCommand) Run(ctx context.Context) error {
	prompt := strings.Join(c.Prompt, " ")
	if prompt == "" {
		var err error
		if prompt, err = readAll(ctx, os.Stdin); err != nil {
			return err
		}
	}
	body := map[string]any{"prompt": prompt, "n": c.N}
	_, err := c.ask(ctx, "/v1/completions", body)
	return err
}

type chatCommand struct {
	endpoint
	System  string   `help:"Instructions for the model."`
	Message []string `arg:"" optional:"" help:"One message; a conversation line by line from standard input if there is none."`
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Run answers one message, or talks until standard input ends.
func (c *chatCommand) Run(ctx context.Context) error {
	var talk []message
	if c.System != "" {
		talk = append(talk, message{"system", c.System})
	}
	say := func(text string) error {
		talk = append(talk, message{"user", text})
		answer, err := c.ask(ctx, "/v1/chat/completions", map[string]any{"messages": talk})
		talk = append(talk, message{"assistant", answer})
		return err
	}
	if len(c.Message) > 0 {
		return say(strings.Join(c.Message, " "))
	}
	for in := newLineReader(os.Stdin); ; {
		text, err := in.next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case text == "":
			continue
		}
		if err := say(text); err != nil {
			return err
		}
	}
}

// ask sends a request and prints its answer as it comes; it returns the answer's text.
func (e *endpoint) ask(ctx context.Context, path string, body map[string]any) (string, error) {
	e.URL = strings.TrimSuffix(strings.TrimSuffix(e.URL, "/"), "/v1")
	key, err := readKey(e.APIKey)
	if err != nil {
		return "", &flags.UsageError{Err: fmt.Errorf("--api-key: %w", err)}
	}
	e.APIKey = key
	if err := e.choose(ctx); err != nil {
		return "", err
	}
	body["model"], body["max_tokens"], body["temperature"] = e.Model, e.MaxTokens, e.Temperature
	if e.Seed != nil {
		body["seed"] = *e.Seed
	}
	body["stream"] = !e.JSON
	resp, err := postJSON(ctx, strings.TrimSuffix(e.URL, "/")+path, e.APIKey, body)
	if err != nil {
		return "", unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", apiError(resp.Body, resp.StatusCode)
	}
	if e.JSON {
		_, err := io.Copy(os.Stdout, resp.Body)
		return "", err
	}
	n, _ := body["n"].(int)
	text, err := stream(resp.Body, os.Stdout, n)
	fmt.Println()
	fmt.Fprintf(os.Stderr, "request %s\n", resp.Header.Get("x-request-id"))
	return text, err
}

// modelPatience is how long a cluster that has just been started may take to have a model.
const modelPatience = 10 * time.Second

// choose takes the cluster's first model if none was named.
func (e *endpoint) choose(ctx context.Context) error {
	if e.Model != "" {
		return nil
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	for limit := time.Now().Add(modelPatience); ; time.Sleep(200 * time.Millisecond) {
		if err := askJSON(ctx, http.MethodGet, strings.TrimSuffix(e.URL, "/")+"/v1/models", e.APIKey, nil, &list); err != nil {
			return err
		}
		if len(list.Data) > 0 {
			break
		}
		if time.Now().After(limit) {
			return errors.New("the cluster serves no model, or none that this key may use; see berth status")
		}
	}
	e.Model = list.Data[0].ID
	return nil
}

// postJSON sends a body, with an API key if there is one.
func postJSON(ctx context.Context, url, key string, body any) (*http.Response, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(raw))
	if err != nil {
		return nil, &flags.UsageError{Err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	return http.DefaultClient.Do(req)
}

// event is one server-sent event of a completion or chat.
type event struct {
	Choices []struct {
		Index int    `json:"index"`
		Text  string `json:"text"`
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
	} `json:"choices"`
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

// eachEvent hands every event of a stream to f, until the stream says that it is done.
func eachEvent(in io.Reader, f func(*event)) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return nil
		}
		var e event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return fmt.Errorf("the stream broke: %w", err)
		}
		if e.Error != nil {
			return apiError(strings.NewReader(data), http.StatusOK)
		}
		f(&e)
	}
	return errors.Join(lines.Err(), errors.New("the stream ended early"))
}

// stream prints the text of server-sent events as it comes, and returns it. Of several answers, which come mixed, each is
// printed under its number at the end.
func stream(in io.Reader, out io.Writer, answers int) (string, error) {
	all := make([]strings.Builder, max(1, answers))
	err := eachEvent(in, func(e *event) {
		for _, c := range e.Choices {
			if c.Index < 0 || c.Index >= len(all) {
				continue
			}
			all[c.Index].WriteString(c.Text + c.Delta.Content)
			if len(all) == 1 {
				io.WriteString(out, c.Text+c.Delta.Content)
			}
		}
	})
	for i := range all {
		if len(all) > 1 {
			fmt.Fprintf(out, "[%d]%s\n", i, all[i].String())
		}
	}
	return all[0].String(), err
}

// refusal is an error that a server answered.
type refusal struct {
	Status      int
	ID, Message string
	TokenFile   string // where a router has the admin token that it asks for
}

func (r *refusal) Error() string {
	if r.ID == "" {
		return r.Message
	}
	return r.ID + ": " + r.Message
}

// apiError reads the error in a body.
func apiError(body io.Reader, status int) error {
	raw, _ := io.ReadAll(io.LimitReader(body, 1<<20))
	var e struct {
		Error struct {
			Message string `json:"message"`
			Berth   struct {
				ID        string `json:"id"`
				TokenFile string `json:"token_file"`
			} `json:"berth"`
		} `json:"error"`
	}
	if json.Unmarshal(raw, &e) != nil || e.Error.Message == "" {
		return &refusal{Status: status, Message: strings.TrimSpace(fmt.Sprintf("%d %s: %s", status, http.StatusText(status), raw))}
	}
	return &refusal{Status: status, ID: e.Error.Berth.ID, Message: e.Error.Message, TokenFile: e.Error.Berth.TokenFile}
}

// getJSON reads a JSON answer.
func getJSON(ctx context.Context, url string, into any) error {
	return askJSON(ctx, http.MethodGet, url, "", nil, into)
}

// askJSON sends a body, with an API key or token if there is one, and reads a JSON answer.
func askJSON(ctx context.Context, method, url, key string, body io.Reader, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return &flags.UsageError{Err: err}
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return apiError(resp.Body, resp.StatusCode)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// unreachable says what to do where nothing listens.
func unreachable(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w (is a cluster up? try: berth up)", err)
	}
	return err
}

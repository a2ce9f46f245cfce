// Command openaigo asks a Berth cluster for the sampling API by the official Go client: openaigo BASE_URL MODEL. It exits 0
// if all is as it should be. It is a module of its own, so that no user of Berth's packages gets the client.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

const (
	text  = "The capital of France is"
	count = 8 // tokens of an answer
)

// asker is a client and the model that it asks.
type asker struct {
	openai.Client
	model string
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: openaigo BASE_URL MODEL")
		os.Exit(2)
	}
	a := &asker{openai.NewClient(option.WithBaseURL(os.Args[1]), option.WithAPIKey("none"), option.WithMaxRetries(0)), os.Args[2]}
	for name, part := range map[string]func(context.Context) error{
		"choices": a.choices, "stream": a.stream, "chat": a.chat, "prompts": a.prompts, "logprobs": a.logprobs, "refusal": a.refusal,
	} {
		if err := part(context.Background()); err != nil {
			fmt.Printf("%s: %v\n", name, err)
			os.Exit(1)
		}
		fmt.Println(name, "well")
	}
	fmt.Println("ok")
}

func (a *asker) params() openai.CompletionNewParams {
	return openai.CompletionNewParams{
		Model: openai.CompletionNewParamsModel(a.model), MaxTokens: openai.Int(count), Temperature: openai.Float(1), Seed: openai.Int(7),
		Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String(text)},
	}
}

func (a *asker) texts(ctx context.Context, p openai.CompletionNewParams) ([]string, *openai.Completion, error) {
	c, err := a.Completions.New(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	var out []string
	for i, one := range c.Choices {
		if one.Index != int64(i) || one.FinishReason != "length" {
			return nil, nil, fmt.Errorf("choice %d: %s", i, one.RawJSON())
		}
		out = append(out, one.Text)
	}
	return out, c, nil
}

// choices: a seed repeats a set of choices, the first of which is what one alone would be; usage counts all.
func (a *asker) choices(ctx context.Context) error {
	p := a.params()
	one, _, err := a.texts(ctx, p)
	if err != nil {
		return err
	}
	p.N = openai.Int(4)
	first, c, err := a.texts(ctx, p)
	if err != nil {
		return err
	}
	again, _, err := a.texts(ctx, p)
	switch {
	case err != nil:
		return err
	case len(first) != 4 || !slices.Equal(first, again) || first[0] != one[0]:
		return fmt.Errorf("%q, then %q, alone %q", first, again, one)
	case c.Usage.CompletionTokens != 4*count || c.Usage.TotalTokens != c.Usage.PromptTokens+4*count:
		return fmt.Errorf("usage %s", c.Usage.RawJSON())
	}
	p.BestOf, p.N = openai.Int(4), openai.Int(1)
	best, _, err := a.texts(ctx, p)
	if err == nil && (len(best) != 1 || !slices.Contains(first, best[0])) {
		err = fmt.Errorf("best of %q: %q", first, best)
	}
	return err
}

// stream: chunks of several choices come mixed, each under its index.
func (a *asker) stream(ctx context.Context) error {
	p := a.params()
	p.N = openai.Int(3)
	want, _, err := a.texts(ctx, p)
	if err != nil {
		return err
	}
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	s := a.Completions.NewStreaming(ctx, p)
	got, used := make([]string, 3), int64(0)
	for s.Next() {
		for _, c := range s.Current().Choices {
			got[c.Index] += c.Text
		}
		used = max(used, s.Current().Usage.CompletionTokens)
	}
	if err := s.Err(); err != nil {
		return err
	}
	if !slices.Equal(got, want) || used != 3*count {
		return fmt.Errorf("streamed %q with %d tokens, whole %q", got, used, want)
	}
	return nil
}

// chat: log-probabilities of a chat's tokens, whole and gathered from a stream by the client's own accumulator.
func (a *asker) chat(ctx context.Context) error {
	p := openai.ChatCompletionNewParams{
		Model: a.model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Say hello")}, N: openai.Int(2),
		MaxTokens: openai.Int(count), Temperature: openai.Float(1), Seed: openai.Int(7), Logprobs: openai.Bool(true), TopLogprobs: openai.Int(3),
	}
	c, err := a.Chat.Completions.New(ctx, p)
	if err != nil {
		return err
	}
	s, all := a.Chat.Completions.NewStreaming(ctx, p), openai.ChatCompletionAccumulator{}
	for s.Next() {
		if !all.AddChunk(s.Current()) {
			return fmt.Errorf("the accumulator does not take %s", s.Current().RawJSON())
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	if len(c.Choices) != 2 || len(all.Choices) != 2 {
		return fmt.Errorf("%d choices, %d streamed", len(c.Choices), len(all.Choices))
	}
	for i, one := range c.Choices {
		var spelt []byte
		for _, t := range one.Logprobs.Content {
			if len(t.TopLogprobs) != 3 || t.Logprob > 0 {
				return fmt.Errorf("token %s", t.RawJSON())
			}
			for _, b := range t.Bytes {
				spelt = append(spelt, byte(b))
			}
		}
		if string(spelt) != one.Message.Content || all.Choices[i].Message.Content != one.Message.Content {
			return fmt.Errorf("choice %d: %q, spelt %q, streamed %q", i, one.Message.Content, spelt, all.Choices[i].Message.Content)
		}
	}
	return nil
}

// prompts: each has its own choices, in their order.
func (a *asker) prompts(ctx context.Context) error {
	p := a.params()
	p.Temperature = openai.Float(0)
	one, _, err := a.texts(ctx, p)
	if err != nil {
		return err
	}
	p.Prompt = openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"One, two, three,", text}}
	both, _, err := a.texts(ctx, p)
	if err == nil && (len(both) != 2 || both[1] != one[0] || both[0] == both[1]) {
		err = fmt.Errorf("%q, alone %q", both, one)
	}
	return err
}

// logprobs: those of an answer, and those of a prompt that is echoed and scored with it.
func (a *asker) logprobs(ctx context.Context) error {
	p := a.params()
	p.Logprobs = openai.Int(2)
	c, err := a.Completions.New(ctx, p)
	if err != nil {
		return err
	}
	plain := c.Choices[0].Logprobs
	for i, token := range plain.Tokens {
		if top := plain.TopLogprobs[i]; top[token] != plain.TokenLogprobs[i] || len(top) < 2 || len(top) > 3 {
			return fmt.Errorf("%q is not among %v", token, top)
		}
	}
	p.Echo = openai.Bool(true)
	if c, err = a.Completions.New(ctx, p); err != nil {
		return err
	}
	one := c.Choices[0]
	// The client makes nothing of top_logprobs here: the first token's are null, as OpenAI has them.
	l := one.Logprobs
	if n := len(l.Tokens); !strings.HasPrefix(one.Text, text) || n <= count || len(l.TokenLogprobs) != n || len(l.TextOffset) != n ||
		!slices.Equal(l.TokenLogprobs[n-count:], plain.TokenLogprobs) {
		return fmt.Errorf("echoed: %s", one.RawJSON())
	}
	for i, token := range l.Tokens[1:] {
		if !strings.HasPrefix(one.Text[l.TextOffset[i+1]:], token) {
			return fmt.Errorf("token %q is not at %d of %q", token, l.TextOffset[i+1], one.Text)
		}
	}
	p.MaxTokens = openai.Int(0)
	if c, err = a.Completions.New(ctx, p); err == nil && (c.Choices[0].Text != text || c.Usage.CompletionTokens != 0) {
		err = fmt.Errorf("scored alone: %s", c.RawJSON())
	}
	return err
}

// refusal: a field that cannot be is named.
func (a *asker) refusal(ctx context.Context) error {
	p := a.params()
	p.N, p.BestOf = openai.Int(3), openai.Int(2)
	_, err := a.Completions.New(ctx, p)
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != 400 || e.Param != "best_of" {
		return fmt.Errorf("best_of below n: %w", err)
	}
	return nil
}

package tokenizer_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/model/tokenizer"
	"github.com/berthd/berth/model/tokenizer/jinja"
)

// chats are jinja2's renderings of templates over message lists.
type chats struct {
	Now     string            `json:"now"`
	Special map[string]string `json:"special"`
	Lists   []struct {
		Name     string              `json:"name"`
		Messages []tokenizer.Message `json:"messages"`
		Extra    *jinja.Dict         `json:"kwargs"`
	} `json:"lists"`
	Cases []struct {
		Template string  `json:"template"`
		List     string  `json:"list"`
		Answer   bool    `json:"add_generation_prompt"`
		Out      *string `json:"out"`
		Error    string  `json:"error"`
		Message  string  `json:"message"`
	} `json:"cases"`
}

// thirdParty finds the folder of golden chats, which holds templates under other licences and so is not in the
// repository; $BERTH_GOLDEN names it, else it is looked for beside the checkout.
func thirdParty(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{os.Getenv("BERTH_GOLDEN"), "../../../shared/golden"} {
		if _, err := os.Stat(filepath.Join(dir, "chat", "chat.json")); dir != "" && err == nil {
			return filepath.Join(dir, "chat")
		}
	}
	t.Skip("golden chats are not here: they hold third-party templates and stand beside the repository; set BERTH_GOLDEN to their folder")
	return ""
}

// render renders a case's list, ok if there is one of that name.
func (c *chats) render(source, list string, answer bool) (text string, err error) {
	tmpl, err := tokenizer.NewTemplate(source, c.Special["bos_token"], c.Special["eos_token"])
	if err != nil {
		return "", err
	}
	for _, l := range c.Lists {
		if l.Name == list {
			now, err := time.Parse("2006-01-02T15:04:05", c.Now)
			if err != nil {
				return "", err
			}
			return tmpl.Render(l.Messages, answer, l.Extra, now)
		}
	}
	return "", os.ErrNotExist
}

// TestGoldenChats renders every template over every list: the text is jinja2's, or the refusal is, of the same kind and,
// where the template itself wrote it, in the same words.
func TestGoldenChats(t *testing.T) {
	dir := thirdParty(t)
	var c chats
	readJSON(t, filepath.Join(dir, "chat.json"), &c)
	texts, refusals := 0, 0
	for _, k := range c.Cases {
		source, err := os.ReadFile(filepath.Join(dir, "templates", k.Template+".jinja"))
		if err != nil {
			t.Fatal(err)
		}
		text, err := c.render(string(source), k.List, k.Answer)
		var e *jinja.Error
		switch {
		case k.Out != nil && err == nil && text == *k.Out:
			texts++
		case k.Out == nil && errors.As(err, &e) && kinds[e.Kind] == k.Error && (e.Kind != jinja.Raised || e.Message == k.Message):
			refusals++
		default:
			t.Errorf("%s, %s: %v\n%q, want %s %s", k.Template, k.List, err, text, k.Error, k.Message)
		}
	}
	t.Logf("%d texts and %d refusals of %d", texts, refusals, len(c.Cases))
}

// kinds are the names of errors in the golden data.
var kinds = map[jinja.Kind]string{
	jinja.Syntax: "syntax", jinja.Undefined: "undefined", jinja.Runtime: "runtime", jinja.Security: "security",
	jinja.Raised: "raise_exception",
}

// TestBuiltinGemma holds the built-in to jinja2's rendering of a template of the same family, for chats of text.
func TestBuiltinGemma(t *testing.T) {
	dir := thirdParty(t)
	var c chats
	readJSON(t, filepath.Join(dir, "chat.json"), &c)
	source, err := tokenizer.Builtin("gemma")
	if err != nil {
		t.Fatal(err)
	}
	same := 0
	for _, k := range c.Cases {
		if k.Template != "gemma3_style" || k.Out == nil || strings.Contains(*k.Out, "<start_of_image>") {
			continue
		}
		text, err := c.render(source, k.List, k.Answer)
		if err != nil || text != *k.Out {
			t.Errorf("%s: %v\n%q, want\n%q", k.List, err, text, *k.Out)
			continue
		}
		same++
	}
	if same < 8 {
		t.Errorf("only %d chats were compared", same)
	}
}

func TestTemplateRefuses(t *testing.T) {
	source, _ := tokenizer.Builtin("gemma")
	tmpl, err := tokenizer.NewTemplate(source, "<bos>", "<eos>")
	if err != nil {
		t.Fatal(err)
	}
	const user = `{"role": "user", "content": "hi"}`
	for what, list := range map[string]string{
		"two user turns":     user + "," + user,
		"an answer first":    `{"role": "assistant", "content": "hi"}`,
		"late instructions":  user + `, {"role": "assistant", "content": "a"}, {"role": "system", "content": "b"}`,
		"an image":           `{"role": "user", "content": [{"type": "image_url"}]}`,
		"a role that is odd": `{"role": "tool", "content": "x"}`,
	} {
		if text, err := tmpl.Render(messages(t, list), true, nil, time.Time{}); !errors.Is(err, tokenizer.ErrTemplate) {
			t.Errorf("%s: %v, rendered %q", what, err, text)
		}
	}
	text, err := tmpl.Render(messages(t, `{"role": "system", "content": "Be brief."},`+user), true, nil, time.Time{})
	if want := "<bos><start_of_turn>user\nBe brief.\n\nhi<end_of_turn>\n<start_of_turn>model\n"; err != nil || text != want {
		t.Errorf("%v: %q, want %q", err, text, want)
	}
	if _, err := tokenizer.NewTemplate("{% for %}", "", ""); err == nil {
		t.Error("a broken template compiled")
	}
}

// messages are those of a chat, from JSON with commas between them.
func messages(t *testing.T, list string) (out []tokenizer.Message) {
	t.Helper()
	if err := json.Unmarshal([]byte("["+list+"]"), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTemplateKeepsOrder renders tools and arguments: their keys stay as they came.
func TestTemplateKeepsOrder(t *testing.T) {
	tmpl, err := tokenizer.NewTemplate("{{ tools | tojson }}{{ messages[0].args }}", "", "")
	if err != nil {
		t.Fatal(err)
	}
	extra := jinja.NewDict()
	if err := extra.UnmarshalJSON([]byte(`{"tools": [{"z": 1, "a": {"y": 2, "b": 1.0}}]}`)); err != nil {
		t.Fatal(err)
	}
	text, err := tmpl.Render(messages(t, `{"args": {"q": null, "c": true}}`), false, extra, time.Time{})
	if want := `[{"z": 1, "a": {"y": 2, "b": 1.0}}]{'q': None, 'c': True}`; err != nil || text != want {
		t.Errorf("%v: %q, want %q", err, text, want)
	}
}

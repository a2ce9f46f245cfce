package tokenizer_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/model/tokenizer"
)

// chats are jinja2's renderings of templates over message lists.
type chats struct {
	Special map[string]string `json:"special"`
	Lists   []struct {
		Name     string              `json:"name"`
		Messages []tokenizer.Message `json:"messages"`
		Extra    map[string]any      `json:"kwargs"`
	} `json:"lists"`
	Cases []struct {
		Template string  `json:"template"`
		List     string  `json:"list"`
		Answer   bool    `json:"add_generation_prompt"`
		Out      *string `json:"out"`
		Error    any     `json:"error"`
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
			return tmpl.Render(l.Messages, answer, l.Extra)
		}
	}
	return "", os.ErrNotExist
}

// TestGoldenChats renders every template over every list. Dates differ, tool definitions lose the order of their keys,
// and the library prints undefined attributes where jinja2 fails (docs/adr/0004); the bars are what holds.
func TestGoldenChats(t *testing.T) {
	dir := thirdParty(t)
	var c chats
	readJSON(t, filepath.Join(dir, "chat.json"), &c)
	right, wrong, refused, accepted := 0, 0, 0, 0
	for _, k := range c.Cases {
		source, err := os.ReadFile(filepath.Join(dir, "templates", k.Template+".jinja"))
		if err != nil {
			t.Fatal(err)
		}
		text, err := c.render(string(source), k.List, k.Answer)
		switch {
		case k.Out == nil && err != nil:
			refused++
		case k.Out == nil:
			accepted++
		case err == nil && text == *k.Out:
			right++
		default:
			wrong++
		}
	}
	t.Logf("%d of %d texts right; %d of %d refusals made", right, right+wrong, refused, refused+accepted)
	if right < rightTexts || refused < rightRefusals {
		t.Errorf("fewer than %d texts or %d refusals", rightTexts, rightRefusals)
	}
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
	user := tokenizer.Message{"role": "user", "content": "hi"}
	for what, list := range map[string][]tokenizer.Message{
		"two user turns":     {user, user},
		"an answer first":    {{"role": "assistant", "content": "hi"}},
		"late instructions":  {user, {"role": "assistant", "content": "a"}, {"role": "system", "content": "b"}},
		"an image":           {{"role": "user", "content": []any{map[string]any{"type": "image_url"}}}},
		"a role that is odd": {{"role": "tool", "content": "x"}},
	} {
		if text, err := tmpl.Render(list, true, nil); err == nil {
			t.Errorf("%s: rendered %q", what, text)
		}
	}
	text, err := tmpl.Render([]tokenizer.Message{{"role": "system", "content": "Be brief."}, user}, true, nil)
	if want := "<bos><start_of_turn>user\nBe brief.\n\nhi<end_of_turn>\n<start_of_turn>model\n"; err != nil || text != want {
		t.Errorf("%v: %q, want %q", err, text, want)
	}
	if _, err := tokenizer.NewTemplate("{% for %}", "", ""); err == nil {
		t.Error("a broken template compiled")
	}
}

// The bars of TestGoldenChats: most of what is missing are dates, since the golden clock is frozen, and tool definitions.
const rightTexts, rightRefusals = 180, 28

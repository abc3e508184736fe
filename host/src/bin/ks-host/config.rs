//! `--config` for several plugins: which setting is whose.

use anyhow::bail;
use ks_host::PreparedPlugin;
use ks_host::world::SettingError;

/// The settings of each plugin, in the order of the plugins, from all that were given.
///
/// `PLUGIN:limits.burst=7` is for the plugin that messages call so. Without a plugin a setting is for every one that has
/// the field.
///
/// # Errors
/// If it names a plugin that is not there, or no plugin has the field.
pub(crate) fn of_each(
    words: &[String],
    plugins: &[(&str, &PreparedPlugin)],
) -> anyhow::Result<Vec<Vec<String>>> {
    let mut each = vec![Vec::new(); plugins.len()];
    for word in words {
        let (name, setting) = addressed(word);
        let mut known = Vec::new();
        match name {
            Some(name) => known.extend(plugins.iter().position(|(plugin, _)| *plugin == name)),
            // The error of a plugin alone says best what is wrong.
            None if plugins.len() == 1 => known.push(0),
            None => {
                let has_it = |(_, plugin): &(&str, &PreparedPlugin)| {
                    !matches!(
                        plugin.settings(std::slice::from_ref(&setting)),
                        Err(SettingError::Unknown { .. })
                    )
                };
                known.extend((0..plugins.len()).filter(|place| has_it(&plugins[*place])));
            }
        }
        if known.is_empty() {
            let names = plugins.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            match name {
                Some(name) => bail!("--config {word}: there is no plugin `{name}`; there is {names}"),
                None => bail!("--config {word}: none of the plugins has this field: {names}"),
            }
        }
        known.into_iter().for_each(|place| each[place].push(setting.clone()));
    }
    Ok(each)
}

/// A setting and the plugin that it is for. A value may have colons too.
fn addressed(word: &str) -> (Option<&str>, String) {
    let place = word.split_once('=').map_or(word, |(place, _)| place);
    match place.rsplit_once(':') {
        Some((name, _)) => (Some(name), word[name.len() + 1..].to_owned()),
        None => (None, word.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_stands_before_a_colon() {
        let read = |word: &str| {
            let (name, setting) = addressed(word);
            (name.map(str::to_owned), setting)
        };
        assert_eq!(read("limits.burst=7"), (None, "limits.burst=7".into()));
        assert_eq!(read("a.wasm:limits.burst=7"), (Some("a.wasm".into()), "limits.burst=7".into()));
        assert_eq!(read("b:a.wasm:limits.burst"), (Some("b:a.wasm".into()), "limits.burst".into()));
        assert_eq!(read("limits.letter=:"), (None, "limits.letter=:".into()));
    }
}

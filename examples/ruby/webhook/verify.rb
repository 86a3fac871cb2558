# Checks the signature of a request from `posthaste work --http` or a webhook route.
#
# WEBHOOK_SECRET=whsec_… ruby verify.rb WEBHOOK_ID WEBHOOK_TIMESTAMP WEBHOOK_SIGNATURE < BODY
require "openssl"

# `body` is the raw body, before a framework parses it.
def signed?(secret, headers, body)
  timestamp = headers["webhook-timestamp"]
  return false unless timestamp.match?(/\A\d+\z/)
  return false if (Time.now.to_i - timestamp.to_i).abs > 300 # an old one that somebody sends again

  key = secret.delete_prefix("whsec_").unpack1("m")
  signed = "#{headers["webhook-id"]}.#{timestamp}.".b + body
  expected = "v1," + [OpenSSL::HMAC.digest("SHA256", key, signed)].pack("m0")
  signatures = headers["webhook-signature"].split(" ") # two while a secret is rotated
  signatures.any? { |signature| OpenSSL.secure_compare(signature, expected) }
end

if $PROGRAM_NAME == __FILE__
  headers = %w[webhook-id webhook-timestamp webhook-signature].zip(ARGV).to_h
  puts(signed?(ENV.fetch("WEBHOOK_SECRET"), headers, $stdin.binmode.read) ? "signed" : "refused")
end
